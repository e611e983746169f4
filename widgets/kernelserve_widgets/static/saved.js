// What a notebook shows in the place of a widget when it is opened again without its kernel. JupyterLab looks for such
// a widget in the metadata of the notebook: while a notebook is saved, an HTML widget with the same id is put there.
// Other front ends give widgets no way to their document; there nothing happens.

const STATE_MIME = "application/vnd.jupyter.widget-state+json";
const VIEW_MIME = "application/vnd.jupyter.widget-view+json";
const MARK = '<div class="ks-saved">'; // how the entries made here begin

function contextOf(model) {
  try {
    const context = model.widget_manager.context;
    return context.saveState && context.model.cells && context.model.setMetadata ? context : null;
  } catch {
    return null;
  }
}

function shownIds(notebook) {
  const ids = new Set();
  for (const { outputs } of notebook.cells) {
    for (let i = 0; outputs && i < outputs.length; i++) ids.add((outputs.get(i).data[VIEW_MIME] || {}).model_id);
  }
  return ids;
}

// Entries made here stay as long as an output shows them, whoever made them; all others are left alone.
function writeSaved(context, id, entry, parts) {
  if (context.isDisposed || context.model.isDisposed) return;
  const known = context.model.getMetadata("widgets") || {};
  const whole = known[STATE_MIME] || { version_major: 2, version_minor: 0, state: {} };
  const shown = shownIds(context.model);
  const state = {};
  for (const [key, one] of Object.entries(whole.state)) {
    const { value, view_id } = one.state || {};
    const isOurs = String(value).startsWith(MARK);
    const isNeeded = isOurs ? shown.has(key) : !parts.includes(key) && view_id !== id;
    if (isNeeded) state[key] = one;
  }
  if (entry && shown.has(id)) state[id] = entry;
  if (JSON.stringify(state) === JSON.stringify(whole.state)) return; // a write would make the notebook unsaved
  if (Object.keys(state).length) context.model.setMetadata("widgets", { ...known, [STATE_MIME]: { ...whole, state } });
  else context.model.deleteMetadata("widgets");
}

// `html()` is asked when the notebook is saved: null as long as there is nothing to show. `parts()` are the ids of
// models that need not be saved beside it. Returns what ends it.
function keepSaved(model, html, parts = () => []) {
  const id = model.get("view_id");
  const context = id ? contextOf(model) : null;
  if (!context) return () => {};
  const write = (inner, ids) => {
    try {
      const note = '<div style="opacity: 0.7; font-size: 12px">not connected</div>';
      const state = { value: `${MARK}${inner}${note}</div>` };
      const kind = { model_module: "@jupyter-widgets/controls", model_module_version: "2.0.0", model_name: "HTMLModel" };
      writeSaved(context, id, inner === null ? null : { ...kind, state }, ids);
    } catch (error) {
      console.warn("kernelserve: cannot keep a widget in the notebook:", error);
    }
  };
  const save = (_, what) => what === "started" && write(html(), parts());
  context.saveState.connect(save);
  return () => {
    context.saveState.disconnect(save);
    setTimeout(() => write(null, []), 1000); // by then an output that takes its place is there
  };
}
