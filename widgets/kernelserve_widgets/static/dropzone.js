// A drop zone. One store per model knows what the kernel says and what is on its way; any number of views show it.
//
// From the kernel: {state}, and word of uploads (see picture_upload.js). To it: {kind: ...}, see zone_widget.py.
// Names of files and everything else becomes Text nodes.

const EMPTY = { pictures: [], problems: [], line: "", asking: "", brief: false, replaces: false, limits: {} };
const QUESTIONS = {
  drop: ["Drop a picture here", "the cell goes on when it is there"],
  clipboard: ["Press Ctrl+V here", "the cell goes on when the picture is there"],
};
const ICON = "M4 16l4.6-4.6a2 2 0 0 1 2.8 0L16 16m-2-2 1.6-1.6a2 2 0 0 1 2.8 0L20 14M14 8h.01M6 20h12a2 2 0 0 0 2-2V6"
  + "a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2z";
const SVG = "http://www.w3.org/2000/svg";

function make(tag, className, text, attributes = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function makeButton(className, text, label, act) {
  const node = make("button", className, text, { type: "button", "aria-label": label, title: label });
  node.addEventListener("click", act);
  return node;
}

function makeIcon() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "ks-icon");
  svg.setAttribute("aria-hidden", "true");
  const path = svg.appendChild(document.createElementNS(SVG, "path"));
  path.setAttribute("d", ICON);
  return svg;
}

function createStore(model) {
  const views = new Set();
  const store = { state: { ...EMPTY, ...model.get("state") }, alive: true, views, model };
  const draw = () => views.forEach((view) => view.draw());
  store.uploads = createUploads(model, () => store.state.limits, draw);
  store.receive = (message) => {
    if (message.state) {
      store.state = message.state;
      draw();
    } else store.uploads.receive(message);
  };
  store.close = () => {
    if (!store.alive) return;
    store.alive = false;
    store.uploads.close();
    draw();
  };
  watchKernel(model, store.close);
  return store;
}

// A model of a kernel that has ended or was restarted is never heard again. Front ends without this say nothing.
async function watchKernel(model, end) {
  try {
    const inner = await model.widget_manager.get_model(model.get("view_id"));
    const look = () => inner.comm_live || end();
    inner.on("comm_live_update", look);
    look();
  } catch {
    return;
  }
}

function pictureItem(store, picture, index) {
  const item = make("li", "ks-picture");
  const text = make("div", "ks-words");
  text.append(make("div", "ks-name", picture.name, { title: picture.name }), make("div", "ks-facts", picture.text));
  if (picture.line) text.append(make("code", "ks-line", picture.line));
  item.append(make("img", "ks-thumb", undefined, { src: picture.thumbnail, alt: picture.name }), text);
  if (store.alive) {
    const remove = () => store.model.send({ kind: "remove", number: index });
    item.append(makeButton("ks-remove", "✕", `Take ${picture.name} out`, remove));
  }
  return item;
}

function jobItem(store, job) {
  const item = make("li", job.problem ? "ks-problem" : "ks-job");
  if (job.problem) {
    const close = makeButton("ks-remove", "✕", "Hide this message", () => store.uploads.forget(job));
    item.append(make("span", "", job.problem, { role: "alert" }), close);
    return item;
  }
  const done = job.size ? Math.min(1, job.got / job.size) : 0;
  const words = job.slow ? "waiting for the kernel: a cell may be running" : job.size ? sizeText(job.size) : "reading";
  const bar = make("progress", "", undefined, { max: "1", "aria-label": `${job.name}: ${Math.round(100 * done)} %` });
  if (job.size) bar.value = done;
  const cancel = makeButton("ks-remove", "✕", `Stop sending ${job.name}`, () => store.uploads.cancel(job));
  item.append(make("span", "ks-name", job.name), bar, make("span", "ks-facts", words), cancel);
  return item;
}

function copyButton(line) {
  const button = makeButton("ks-button", "Copy options", "Copy the options that load these pictures", async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = "Copied";
    } catch {
      button.replaceWith(make("code", "ks-line", line)); // no clipboard here: at least it can be selected
    }
  });
  return button;
}

function createPad(store, root, picker) {
  const { state, uploads, alive } = store;
  const pad = make("div", "ks-pad");
  if (!alive) {
    pad.append(make("span", "ks-hint", "Not connected to the kernel any more: run this cell again"));
    return pad;
  }
  const full = state.pictures.length > 0 && !state.asking;
  const other = state.brief ? "Another picture? Drop it here, and run the cell again" : "Run the cell again, or drop another";
  const again = state.replaces ? other : "Drop more pictures here";
  const then = state.replaces ? "then run the cell again" : "or paste them with Ctrl+V";
  const [title, hint] = QUESTIONS[state.asking] || [full ? again : "Drop pictures here", full ? "" : then];
  const words = make("div", "ks-words");
  words.append(make("div", "ks-title", title));
  if (hint) words.append(make("div", "ks-hint", hint));
  if (state.brief && state.line) words.append(make("code", "ks-line", state.line));
  const paste = async () => {
    try {
      uploads.add(await readClipboard(), "pasted picture");
    } catch (error) {
      uploads.fail(error.message);
    }
  };
  const buttons = make("div", "ks-buttons");
  buttons.append(
    makeButton("ks-button", "Choose files", "Choose picture files", () => picker.click()),
    makeButton("ks-button", "Paste", "Paste the picture in the clipboard", paste),
  );
  if (state.asking) {
    const cancel = () => store.model.send({ kind: "cancel" });
    buttons.append(makeButton("ks-button", "Cancel", "Do not wait for a picture: end the cell", cancel));
  }
  pad.append(makeIcon(), words, buttons);
  return pad;
}

function footBar({ state, alive, model }) {
  const bar = make("div", "ks-foot");
  if (state.line) bar.append(copyButton(state.line));
  const clear = () => model.send({ kind: "clear" });
  if (alive) bar.append(makeButton("ks-button", "Clear", "Take all pictures out", clear));
  return bar;
}

function createView(store, el) {
  const label = "Drop zone for pictures: drop files, press Ctrl+V to paste, or choose files";
  const root = make("div", "ks-drop", undefined, { tabindex: "0", role: "group", "aria-label": label });
  const body = make("div", "ks-body");
  const status = make("div", "ks-status", undefined, { role: "status", "aria-live": "polite" });
  const picker = make("input", "ks-picker", undefined, { type: "file", accept: "image/*", multiple: "", hidden: "" });
  picker.addEventListener("change", () => {
    if (picker.files.length) store.uploads.add(picker.files);
    picker.value = "";
  });
  root.append(body, picker, status);
  el.append(root);
  const take = (files, name) => store.uploads.add(files, name);
  takeDrops(root, take, store.uploads.fail);
  takeLabDrags(root, contextOf(store.model), take, store.uploads.fail);
  const endPastes = takePastes(root, take, store.uploads.fail);

  const view = {
    draw() {
      const { state, uploads } = store;
      const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
      root.classList.toggle("ks-asking", Boolean(state.asking) && store.alive);
      root.classList.toggle("ks-brief", state.brief);
      const parts = [createPad(store, root, picker)];
      const add = (tag, className, items) => items.length && parts.push(make(tag, className)) && parts.at(-1).append(...items);
      add("ul", "ks-jobs", uploads.jobs.map((job) => jobItem(store, job)));
      add("ul", "ks-jobs", state.problems.map((text) => make("li", "ks-problem", text, { role: "alert" })));
      if (!state.brief) add("ul", "ks-pictures", state.pictures.map((one, i) => pictureItem(store, one, i)));
      if (!state.brief && state.pictures.length) parts.push(footBar(store));
      body.replaceChildren(...parts);
      const number = state.pictures.length;
      status.textContent = number === 1 ? "1 picture" : `${number} pictures`;
      if (focused !== null) {
        const same = [...body.querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === focused);
        (same || root).focus({ preventScroll: true });
      }
    },
    remove() {
      endPastes();
      store.views.delete(view);
    },
  };
  view.draw();
  store.views.add(view);
  store.model.send({ kind: "hello" });
  return view;
}

// What a notebook shows that was saved with the zone and opened without its kernel.
function stillZone({ pictures, brief, line }) {
  const box = make("div");
  if (brief) box.append(make("code", "", line));
  for (const one of brief ? [] : pictures) {
    const row = make("div", "", undefined, { style: "display: flex; gap: 10px; align-items: center; margin: 4px 0" });
    row.append(make("img", "", undefined, { src: one.thumbnail, alt: one.name }), make("code", "", one.line || one.name));
    box.append(row);
  }
  return pictures.length ? box.innerHTML : null;
}

export default storedWidget(createStore, createView, (store) => stillZone(store.state));
