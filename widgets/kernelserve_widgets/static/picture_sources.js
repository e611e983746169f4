// Where pictures come from: files dropped from the desktop or from JupyterLab's file browser, the clipboard, a dialog.

const CONTENTS_MIME = "application/x-jupyter-icontents"; // paths of the server
const EDITORS = "input, textarea, select, [contenteditable]:not([contenteditable=false]), .cm-editor";

const filesOf = (data) => [...((data && data.files) || [])];

// Drags from the desktop: ordinary events of the browser.
function takeDrops(root, take, fail) {
  const carries = (event) => [...((event.dataTransfer && event.dataTransfer.types) || [])].length > 0;
  let depth = 0;
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    root.classList.toggle("ks-over", depth > 0);
  };
  root.addEventListener("dragenter", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    mark(1);
  });
  root.addEventListener("dragleave", () => mark(-1));
  root.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault(); // without it the browser would leave the page and show the file
    event.stopPropagation();
    event.dataTransfer.dropEffect = "copy";
  });
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    mark(0);
    const files = filesOf(event.dataTransfer);
    if (files.length) take(files);
    else fail("what was dropped holds no file: save the picture first, or name its address with --image URL");
  });
}

async function readFromServer(context, path) {
  const resolver = context && context.urlResolver;
  const name = path.split("/").pop();
  if (!resolver) throw new Error(`${name}: this front end does not let a zone read its files: use --image ${path}`);
  const url = await resolver.getDownloadUrl(path.split("/").map(encodeURIComponent).join("/"));
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${name}: the server does not give it (${answer.status} ${answer.statusText})`);
  const blob = await answer.blob();
  return new File([blob], name, { type: blob.type });
}

// Drags from JupyterLab's file browser: events of its own, which bubble as long as nobody takes them.
function takeLabDrags(root, context, take, fail) {
  const offered = (event) => Boolean(event.mimeData && event.mimeData.hasData(CONTENTS_MIME));
  const answer = (event) => {
    event.preventDefault();
    event.stopPropagation();
    event.dropAction = event.proposedAction; // the file browser refuses any other
  };
  const handlers = {
    "lm-dragenter": (event) => {
      answer(event);
      root.classList.add("ks-over");
    },
    "lm-dragover": answer,
    "lm-dragleave": (event) => {
      answer(event);
      if (!root.contains(event.relatedTarget)) root.classList.remove("ks-over");
    },
    "lm-drop": async (event) => {
      answer(event);
      root.classList.remove("ks-over");
      const files = [];
      for (const path of event.mimeData.getData(CONTENTS_MIME)) {
        try {
          files.push(await readFromServer(context, path));
        } catch (error) {
          fail(error.message);
        }
      }
      if (files.length) take(files);
    },
  };
  for (const [name, handle] of Object.entries(handlers)) {
    root.addEventListener(name, (event) => offered(event) && handle(event));
  }
}

// Ctrl+V while the zone has the focus, or while the pointer is over it and no editor has the focus.
function takePastes(root, take, fail) {
  let over = false;
  root.addEventListener("pointerenter", () => (over = true));
  root.addEventListener("pointerleave", () => (over = false));
  const paste = (event) => {
    const focused = document.activeElement;
    const isHere = root.contains(focused) || (over && !(focused && focused.closest(EDITORS)));
    if (!isHere) return;
    event.preventDefault();
    event.stopImmediatePropagation(); // JupyterLab would paste cells
    const files = filesOf(event.clipboardData);
    if (files.length) take(files, "pasted picture");
    else fail("the clipboard holds no picture: copy one first");
  };
  document.addEventListener("paste", paste, true);
  return () => document.removeEventListener("paste", paste, true);
}

async function readClipboard() {
  if (!navigator.clipboard || !navigator.clipboard.read) {
    throw new Error("this browser lets no page read the clipboard: click here and press Ctrl+V");
  }
  let items;
  try {
    items = await navigator.clipboard.read();
  } catch {
    throw new Error("the browser did not let this page read the clipboard: click here and press Ctrl+V");
  }
  const files = [];
  for (const item of items) {
    const type = item.types.find((one) => one.startsWith("image/"));
    if (type) files.push(new File([await item.getType(type)], "pasted picture", { type }));
  }
  if (!files.length) throw new Error("the clipboard holds no picture: copy one first");
  return files;
}
