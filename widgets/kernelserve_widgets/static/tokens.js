// The tokens of a finished answer: shades, alternatives, and "continue from here" in a new cell.
//
// To the kernel: {kind: "sync"} and {kind: "continue", index, token}.
// From it: {answers: [[token...]...]} with tokens [text, probability, alternatives, id, index], and {source}.

function notebookOf(model) {
  try {
    const shared = model.widget_manager.context.model.sharedModel;
    return typeof shared.insertCell === "function" && shared.cells ? shared : null;
  } catch {
    return null; // a front end that gives widgets no way to its document
  }
}

function indexAfter(notebook, cellId, el) {
  const known = cellId ? notebook.cells.findIndex((cell) => (cell.getId ? cell.getId() : cell.id) === cellId) : -1;
  if (known >= 0) return known + 1;
  const node = el.closest(".jp-Cell");
  const windowed = node ? Number(node.dataset.windowedListIndex) : NaN;
  if (Number.isInteger(windowed)) return windowed + 1;
  const place = node ? [...node.parentElement.children].filter((one) => one.matches(".jp-Cell")).indexOf(node) : -1;
  return place >= 0 ? place + 1 : notebook.cells.length;
}

function insertCell(model, el, source) {
  const notebook = notebookOf(model);
  if (!notebook) return false;
  try {
    const index = indexAfter(notebook, model.get("cell_id"), el);
    notebook.insertCell(index, { cell_type: "code", source, metadata: {}, outputs: [] });
    return true;
  } catch (error) {
    console.warn("kernelserve: cannot insert a cell:", error);
    return false;
  }
}

function showSource(place, source) {
  const box = make("div", "ks-source");
  const copy = make("button", "ks-copy", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // no clipboard here: at least it is selected
      copy.textContent = "Selected: press Ctrl+C";
    }
  });
  const code = make("pre", "", source);
  box.append(make("div", "ks-counters", "Put this into a new cell and run it:"), code, copy);
  place.replaceChildren(box);
  copy.focus();
}

function createExplorer(model, el) {
  const root = make("div", "ks-stream");
  const grid = make("div", "ks-grid");
  const status = make("div", "ks-status");
  const line = make("span", "ks-counters", "asking the kernel\u2026");
  const source = make("div", "");
  const facts = new WeakMap();
  let asked = false;
  line.setAttribute("role", "status");
  status.append(line);
  root.append(grid, source, status);
  el.append(root);

  const canContinue = model.get("can_continue");
  const popover = tokenPopover(root, facts, canContinue && ((token, id) => {
    asked = true;
    model.send({ kind: "continue", index: token[4], token: id });
  }));

  function draw(answers) {
    grid.className = answers.length > 1 ? "ks-grid ks-several" : "ks-grid";
    grid.replaceChildren(...answers.map((tokens, index) => {
      const pane = make("div", "ks-pane");
      const text = make("div", "ks-text");
      if (answers.length > 1) pane.append(make("div", "ks-head", `[${index}]`));
      text.append(...tokens.map((token) => (typeof token === "string" ? token : tokenSpan(token, facts))));
      enterTokens(text);
      pane.append(text);
      return pane;
    }));
    const more = canContinue ? ", click it to continue from another one" : "";
    setText(line, `hover a token to see what else could have come${more}`);
  }

  const receive = (message) => {
    if (message.answers) draw(message.answers);
    if (message.problem !== undefined) setText(line, message.problem);
    // A kernel's message goes to all views: only the one that asked puts in a cell.
    if (message.source !== undefined && asked) {
      asked = false;
      popover.hide();
      source.replaceChildren();
      if (insertCell(model, el, message.source)) setText(line, "a new cell below continues from there");
      else showSource(source, message.source);
    }
  };
  model.on("msg:custom", receive);
  model.send({ kind: "sync" });
  return () => model.off("msg:custom", receive);
}

function keepTokens(model) {
  let answers = null;
  const receive = (message) => (answers = message.answers || answers);
  model.on("msg:custom", receive);
  const end = keepSaved(model, () => answers && stillAnswers(answers));
  return () => {
    model.off("msg:custom", receive);
    end();
  };
}

export default {
  initialize: ({ model }) => keepTokens(model),
  render: ({ model, el }) => createExplorer(model, el),
};
