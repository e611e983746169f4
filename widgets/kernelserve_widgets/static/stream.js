// The live view of an answer. One store per model takes every message once; any number of views show the store.
//
// Messages, in the order of their numbers `s`:
//   {s, d}              more of answer 0: a string, or a list of tokens
//   {s, a: [[i, d]...]} the same for several answers
//   {s, full: [d...]}   a snapshot: everything up to and including message s
//   {s, end}            nothing more comes; `end` is the summary
//   {c}                 the counters changed; may come with any of the above
//   {n}                 the number of the last message, when nothing new comes
//   {stopping: true}    somebody pressed Stop
// A missing number means that a message was lost, or came before this page was loaded: then a snapshot is asked for.

const RETRY_MS = 2000;
const CHUNK = 4000; // characters in one block of a pane: a browser lays out only the last block again
const SLOW_STOP_MS = 4000;
const STOP_AGAIN_MS = 500; // a kernel whose cell blocks may hear one click and not the other: it depends on the moment
const MOST_TRIES = 6;

function createStore(model) {
  const state = model.get("state") || { answers: 1, s: 0, full: [[]], end: "not connected" }; // a closed widget's
  const store = {
    hint: state.hint, // says why a click may not reach the kernel
    tokens: state.tokens,
    seq: 0,
    answers: Array.from({ length: state.answers }, () => []), // pieces: strings or tokens
    counters: "",
    end: null,
    stopping: false,
    heard: false, // the kernel has answered a question while it runs: so a click reaches it too
    views: new Set(),
  };
  let waiting = []; // later messages, kept while one is missing
  let asked = 0;
  let tries = 0;
  let stopHeard = false;

  const tell = (what, ...more) => store.views.forEach((view) => view[what](...more));

  function ask() {
    if (Date.now() - asked < RETRY_MS) return;
    asked = Date.now();
    tries += 1;
    model.send({ kind: "sync" });
  }

  function add(index, piece) {
    const pieces = Array.isArray(piece) ? piece : [piece];
    for (const one of pieces) store.answers[index].push(one); // no spread: a piece may be a whole answer
    tell("add", index, pieces);
  }

  function replace(message) {
    store.seq = message.s;
    store.answers = message.full.map((whole) => (Array.isArray(whole) ? whole : [whole]));
    tell("redraw");
  }

  function apply(message) {
    store.seq = message.s;
    if (message.d !== undefined) add(0, message.d);
    for (const [index, piece] of message.a || []) add(index, piece);
    if (message.end !== undefined) store.end = message.end;
  }

  function take(message) {
    if (message.full) {
      asked = 0;
      store.heard = store.heard || message.end === undefined;
      if (message.s > store.seq) replace(message);
      if (message.s >= store.seq && message.end !== undefined) store.end = message.end;
    } else {
      waiting.push(message);
    }
    waiting = waiting.filter((later) => later.s > store.seq).sort((one, two) => one.s - two.s);
    while (waiting.length && waiting[0].s === store.seq + 1) apply(waiting.shift());
    if (waiting.length) ask();
  }

  store.receive = (message) => {
    if (message.c !== undefined) store.counters = message.c;
    if (message.stopping) store.stopping = stopHeard = true;
    if (message.s !== undefined) take(message);
    if (message.n > store.seq) ask();
    if (store.hint && !store.heard && tries < MOST_TRIES) ask();
    tell("status");
  };
  function sendStop(times) {
    if (stopHeard || store.end !== null || times === 0) return;
    model.send({ kind: "stop" });
    setTimeout(() => sendStop(times - 1), STOP_AGAIN_MS);
  }
  store.stop = () => {
    store.stopping = true;
    tell("status");
    sendStop(MOST_TRIES);
  };
  store.close = () => {
    stopHeard = true;
  };

  if (state.full) store.receive(state);
  store.heard = false;
  // A model made in this page hears everything from the start. One that was restored, or whose cell may block the
  // kernel, asks: to get what it missed, or to learn whether the kernel listens.
  if (store.end === null && (!state.fresh || store.hint)) ask();
  return store;
}

function createPane(index, count, asTokens, facts) {
  const pane = make("div", "ks-pane");
  if (count > 1) pane.append(make("div", "ks-head", `[${index}]`));
  const text = make("div", "ks-text");
  text.tabIndex = 0; // so that the keyboard can scroll it
  text.setAttribute("role", "log");
  text.setAttribute("aria-live", "polite");
  text.setAttribute("aria-label", count > 1 ? `answer ${index}` : "answer");
  pane.append(text);
  let follow = true;
  let block, length, node;

  text.addEventListener("scroll", () => {
    follow = text.scrollHeight - text.scrollTop - text.clientHeight < 12;
  });

  function nextBlock() {
    block = make("div", "ks-block");
    text.append(block);
    length = 0;
    node = null;
  }

  function put(string) {
    if (!node) block.append((node = document.createTextNode("")));
    node.appendData(string);
    length += string.length;
  }

  function addText(string) {
    while (length + string.length > CHUNK) {
      const cut = string.indexOf("\n", Math.max(0, CHUNK - length));
      if (cut < 0) break;
      put(string.slice(0, cut + 1)); // a newline at the end of a block makes no empty line
      string = string.slice(cut + 1);
      nextBlock();
    }
    if (string) put(string);
  }

  function addToken(token) {
    block.append(tokenSpan(token, facts));
    length += token[0].length;
    if (length > CHUNK && token[0].endsWith("\n")) nextBlock();
  }

  return {
    node: pane,
    add(pieces) {
      for (const piece of pieces) typeof piece === "string" ? addText(piece) : addToken(piece);
      if (asTokens) enterTokens(text);
      if (follow) text.scrollTop = text.scrollHeight;
    },
    clear() {
      text.replaceChildren();
      nextBlock();
    },
  };
}

function createView(store, el) {
  const root = make("div", "ks-stream");
  const bar = make("div", "ks-status");
  const button = make("button", "ks-stop", "Stop");
  const counters = make("span", "ks-counters");
  const facts = new WeakMap();
  const panes = store.answers.map((_, index) => createPane(index, store.answers.length, store.tokens, facts));
  const grid = make("div", panes.length > 1 ? "ks-grid ks-several" : "ks-grid");
  button.type = "button";
  grid.append(...panes.map((pane) => pane.node));
  bar.append(button, counters);
  root.append(grid, bar);
  const popover = store.tokens ? tokenPopover(root, facts) : null;
  button.addEventListener("click", () => {
    if (!store.stopping) store.stop();
  });

  let slow = 0;
  let late = false;
  const view = {
    add: (index, pieces) => panes[index].add(pieces),
    redraw() {
      if (popover) popover.hide();
      panes.forEach((pane, index) => {
        pane.clear();
        pane.add(store.answers[index]);
      });
    },
    status() {
      const ended = store.end !== null;
      const deaf = Boolean(store.hint) && !store.heard;
      button.hidden = ended;
      button.disabled = deaf;
      button.setAttribute("aria-disabled", String(deaf || store.stopping));
      const stopping = late ? "stopping\u2026 or press \u25a0 (Interrupt)" : "stopping\u2026";
      setText(button, deaf ? store.hint : store.stopping ? stopping : "Stop");
      setText(counters, ended ? store.end : store.counters);
      if (store.stopping && !ended && !slow) {
        slow = setTimeout(() => {
          late = true;
          view.status();
        }, SLOW_STOP_MS);
      }
    },
    remove() {
      clearTimeout(slow);
      store.views.delete(view);
    },
  };
  view.redraw();
  view.status();
  el.append(root);
  store.views.add(view);
  return view;
}

export default storedWidget(createStore, createView, (store) => stillAnswers(store.answers));
