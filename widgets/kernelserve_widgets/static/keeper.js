// A model without a view: while the notebook is saved, it puts a still form of other widgets into it, as HTML.

const MOST_LOOKS = 40;
const LOOK_MS = 250;

function asHtml(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node.outerHTML;
}

function picture(model) {
  const value = model.get("value"); // a DataView
  const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  const src = `data:image/${model.get("format")};base64,${btoa(binary)}`;
  return asHtml("img", "", { src, width: model.get("width"), height: model.get("height") });
}

function still(model) {
  const children = model.get("children");
  const kind = model.get("_model_name");
  if (children) {
    const row = kind === "HBoxModel" ? ' style="display: flex; flex-flow: row wrap; gap: 2px 16px"' : "";
    return `<div${row}>${children.map(still).join("")}</div>`;
  }
  if (kind === "ButtonModel") return ""; // says nothing
  if (kind === "HTMLModel") return model.get("value");
  if (kind === "ImageModel") return picture(model);
  const labels = model.get("_options_labels");
  const value = labels ? labels[model.get("index")] : model.get("value");
  return asHtml("span", `${model.get("description")} ${value}`.trim());
}

function idsBelow(model) {
  const below = (model.get("children") || []).flatMap((child) => [child.model_id, ...idsBelow(child)]);
  return [...below, ...["layout", "style"].map((name) => model.get(name)).filter(Boolean).map((one) => one.model_id)];
}

async function find(manager, id, signal) {
  for (let looks = 0; looks < MOST_LOOKS && !signal.aborted; looks++) {
    if (manager.has_model(id)) return manager.get_model(id);
    await new Promise((done) => setTimeout(done, LOOK_MS)); // after a reload models come in any order
  }
  return null;
}

export default {
  initialize({ model }) {
    if (!contextOf(model)) return () => {};
    const ended = new AbortController();
    let tree = null;
    find(model.widget_manager, model.get("view_id"), ended.signal).then((found) => (tree = found));
    const end = keepSaved(model, () => tree && still(tree), () => (tree ? idsBelow(tree) : []));
    return () => {
      ended.abort();
      end();
    };
  },
};
