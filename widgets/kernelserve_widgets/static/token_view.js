// Tokens as shaded spans, and the popover that shows what else could have come. Shared by stream.js and tokens.js.
// Everything that a model wrote becomes a Text node. A token is [text, probability, [[text, probability, id?], ...]].

const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

const percent = (p) => `${(100 * p).toFixed(p < 0.1 ? 2 : 1)} %`;
const visible = (text) => text.replace(/ /g, "\u00b7").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5") || "\u2205";

function tokenSpan(token, facts) {
  const span = make("span", "ks-token", token[0]);
  const opacity = 0.6 * (1 - Math.max(0, Math.min(1, token[1])));
  if (opacity > 0.005) span.style.backgroundColor = `rgba(230, 120, 0, ${opacity.toFixed(2)})`;
  span.tabIndex = -1; // one token of a pane is in the tab order, arrow keys go on from there
  facts.set(span, token);
  return span;
}

// One popover for all tokens in `root`. With `pick` a click on a token keeps it open and its rows are buttons.
function tokenPopover(root, facts, pick) {
  const box = make("div", "ks-popover");
  box.setAttribute("role", "tooltip");
  box.id = `ks-popover-${Math.random().toString(36).slice(2)}`;
  box.hidden = true;
  root.append(box);
  let shown = null;
  let pinned = false;

  function row(text, p, chosen, id) {
    const line = make(pick && id >= 0 && !chosen ? "button" : "div", chosen ? "ks-row ks-chosen" : "ks-row");
    const bar = make("span", "ks-bar");
    bar.style.setProperty("--ks-part", p);
    line.append(make("span", "ks-p", percent(p)), bar, make("span", "ks-alt", visible(text)));
    if (line.tagName === "BUTTON") {
      line.type = "button";
      line.title = "continue from here with this token";
      line.addEventListener("click", () => pick(facts.get(shown), id));
    }
    return line;
  }

  function show(span) {
    const [text, p, others, id] = facts.get(span);
    if (shown) shown.removeAttribute("aria-describedby");
    shown = span;
    span.setAttribute("aria-describedby", box.id);
    const rows = others.map(([t, q, i]) => row(t, q, i >= 0 && id >= 0 ? i === id : t === text && q === p, i));
    if (!rows.some((r) => r.classList.contains("ks-chosen"))) rows.unshift(row(text, p, true, id));
    box.replaceChildren(...rows);
    box.hidden = false;
    place();
  }

  function place() {
    const at = shown.getClientRects()[0] || shown.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const below = at.bottom + 4 + size.height <= window.innerHeight;
    box.style.left = `${Math.max(4, Math.min(at.left, window.innerWidth - size.width - 4))}px`;
    box.style.top = `${below ? at.bottom + 4 : Math.max(4, at.top - size.height - 4)}px`;
    // A transformed or contained ancestor moves the origin of fixed positions: correct by what came out.
    const got = box.getBoundingClientRect();
    box.style.left = `${2 * parseFloat(box.style.left) - got.left}px`;
    box.style.top = `${2 * parseFloat(box.style.top) - got.top}px`;
  }

  function hide() {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    pinned = false;
    box.hidden = true;
  }

  const tokenAt = (event) => (event.target.closest ? event.target.closest(".ks-token") : null);
  root.addEventListener("mouseover", (event) => {
    if (pinned) return;
    const span = tokenAt(event);
    if (span) show(span);
    else if (!box.contains(event.target)) hide();
  });
  root.addEventListener("mouseleave", () => pinned || hide());
  root.addEventListener("scroll", (event) => {
    if (!shown || !event.target.contains(shown)) return; // the popover's token moves only with what holds it
    const at = shown.getBoundingClientRect();
    const pane = event.target.getBoundingClientRect();
    if (at.bottom < pane.top || at.top > pane.bottom) hide();
    else place();
  }, true);
  root.addEventListener("focusin", (event) => {
    const span = tokenAt(event);
    if (span) show(span);
  });
  root.addEventListener("focusout", (event) => {
    if (!root.contains(event.relatedTarget)) hide();
  });
  root.addEventListener("click", (event) => {
    const span = tokenAt(event);
    if (!span || !pick) return;
    show(span);
    pinned = true;
  });
  root.addEventListener("keydown", (event) => {
    const span = tokenAt(event);
    if (event.key === "Escape") {
      const back = shown;
      hide();
      if (back && !span) back.focus();
    }
    if (!span) return;
    if (pick && (event.key === "Enter" || event.key === " ")) {
      pinned = true;
      const first = box.querySelector("button");
      if (first) first.focus();
      event.preventDefault();
      return;
    }
    const all = [...span.closest(".ks-text").querySelectorAll(".ks-token")];
    const next = all[all.indexOf(span) + (event.key === "ArrowRight") - (event.key === "ArrowLeft")];
    if (next && next !== span) {
      next.focus();
      event.preventDefault();
      event.stopPropagation();
    }
  });
  return { hide };
}

// All of an answer, strings and tokens, as HTML that needs neither script nor style sheet.
function stillText(pieces) {
  const box = make("div");
  box.style.cssText = "white-space: pre-wrap; overflow-wrap: anywhere; font-family: var(--jp-code-font-family, monospace)";
  for (const piece of pieces) {
    if (typeof piece === "string") {
      box.append(piece);
      continue;
    }
    const span = tokenSpan(piece, new WeakMap());
    span.removeAttribute("tabindex");
    span.title = piece[2].map(([text, p]) => `${percent(p)}  ${visible(text)}`).join("\n");
    box.append(span);
  }
  return box.outerHTML;
}

const stillAnswers = (answers) =>
  answers.map((pieces, i) => (answers.length > 1 ? `<div>[${i}]</div>` : "") + stillText(pieces)).join("");

function enterTokens(text) {
  const first = text.querySelector(".ks-token");
  if (first) first.tabIndex = 0;
}
