export default {
  render({ model, el }) {
    const pre = el.appendChild(document.createElement("pre"));
    const text = (whole) => (typeof whole === "string" ? whole : whole.map((token) => token[0]).join(""));
    const receive = ({ full, end }) => {
      if (!full) return;
      const shown = full.map((whole, i) => (full.length > 1 ? `[${i}]\n` : "") + text(whole));
      pre.textContent = `${shown.join("\n\n")}\n[${end}]`;
    };
    pre.style.cssText = "white-space: pre-wrap; overflow-wrap: anywhere";
    pre.textContent = "not connected";
    model.on("msg:custom", receive);
    model.send({ kind: "sync" });
    return () => model.off("msg:custom", receive);
  },
};
