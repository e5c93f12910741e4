// The fleet: every stream as a row. Live values are written once a frame, and only to rows on screen.

import { button, fill, h, icon, onceAFrame, setAttribute, setText } from "./dom.js";
import { ago, count, counted, driftName, duration, number, percent, severityName, STATES } from "./format.js";
import { drawSpark, spark } from "./spark.js";
import { lasted } from "./event_table.js";

/** @typedef {import("./types.js").Stream} Stream */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./store.js").Store} Store */
/**
 * @typedef {object} Row
 * @property {string} name
 * @property {HTMLTableRowElement} element
 * @property {Record<string, HTMLElement>} cells
 * @property {import("./spark.js").Spark} spark
 * @property {boolean} isOnScreen
 * @property {string} shownState
 * @property {string} shownEvent
 */

const ORDER_EVERY = 2000; // ms: rows that move more often could not be read
const ROWS_A_FRAME = 60;
const STATE_ORDER = /** @type {State[]} */ (Object.keys(STATES));

/** @type {{id: string, label: string, key: (stream: Stream) => number | string, descends: boolean}[]} */
const COLUMNS = [
  { id: "name", label: "Stream", key: (stream) => stream.name, descends: false },
  {
    id: "state",
    label: "State",
    key: (stream) => (stream.open_event ? -stream.open_event.severity : STATE_ORDER.indexOf(stream.state)),
    descends: false,
  },
  {
    id: "score",
    label: "Score",
    key: (stream) => (stream.score ?? -Infinity) / (stream.threshold || 1),
    descends: true,
  },
  { id: "event", label: "Open event", key: (stream) => stream.open_event?.severity ?? -1, descends: true },
  { id: "budget", label: "Budget used", key: (stream) => stream.budget_used ?? -1, descends: true },
  { id: "drift", label: "Drift", key: (stream) => stream.drift ?? -1, descends: true },
  { id: "last", label: "Last reading", key: (stream) => -(stream.last_received ?? 0), descends: true },
];

/** What was chosen, kept while the page is open. */
const chosen = { column: "state", descends: false, text: "", state: /** @type {State | ""} */ ("") };

export class FleetView {
  title = "Fleet";

  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Set<string>} */
    this.changed = new Set();
    this.isOrderOld = true;
    this.body = h("tbody", { role: "rowgroup" });
    this.heading = h("h1", { tabindex: -1 });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by state" });
    this.none = h("p", { class: "note", role: "status" });
    this.heads = COLUMNS.map((column) => this.#head(column));
    this.element = h("div", {}, this.heading, this.#controls(), this.#table());
    this.frame = onceAFrame(() => this.#draw());
    this.screen = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: "120px" });
    this.end = store.subscribe((change) => this.#note(change));
    this.timers = [setInterval(() => this.#tick(), 1000), setInterval(() => this.#reorder(), ORDER_EVERY)];
    this.#draw();
  }

  destroy() {
    this.end();
    this.timers.forEach(clearInterval);
    this.frame.cancel();
    this.screen.disconnect();
  }

  #controls() {
    const set = (/** @type {Event} */ event) =>
      this.#filter({ text: /** @type {HTMLInputElement} */ (event.target).value });
    const search = h("input", {
      type: "search",
      value: chosen.text,
      placeholder: "Filter by name or variable",
      "aria-label": "Filter by text",
      oninput: set,
    });
    return h("div", { class: "controls" }, search, this.chips, this.#sortSelect());
  }

  /** Phones show cards without column heads, so they sort by a list. */
  #sortSelect() {
    const options = COLUMNS.map(({ id, label }) =>
      h("option", { value: id, selected: id === chosen.column }, `Sort by ${label.toLowerCase()}`),
    );
    const sort = (/** @type {Event} */ event) => this.#sort(/** @type {HTMLSelectElement} */ (event.target).value);
    return h("select", { class: "phone", "aria-label": "Sort by", onchange: sort }, options);
  }

  #table() {
    const note =
      "Budget used is the share of the allowed events or flags that there were lately. Drift says whether recent scores are higher than those of training.";
    const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads));
    const table = h("table", { class: "records fleet", role: "table", "aria-label": "Streams" }, head, this.body);
    return h("section", {}, table, this.none, h("p", { class: "note" }, note));
  }

  /** @param {typeof COLUMNS[number]} column */
  #head({ id, label }) {
    const sort = button(label, () => this.#sort(id), { class: "sort" });
    return h("th", { scope: "col", role: "columnheader", class: id, "aria-sort": sortName(id) }, sort);
  }

  /** @param {string} id */
  #sort(id) {
    const column = /** @type {typeof COLUMNS[number]} */ (COLUMNS.find((each) => each.id === id));
    chosen.descends = chosen.column === id ? !chosen.descends : column.descends;
    chosen.column = id;
    this.heads.forEach((head, k) => setAttribute(head, "aria-sort", sortName(COLUMNS[k].id)));
    this.isOrderOld = true;
    this.frame.ask();
  }

  /** @param {Partial<typeof chosen>} choice */
  #filter(choice) {
    Object.assign(chosen, choice);
    this.isOrderOld = true;
    this.frame.ask();
  }

  /** @param {import("./store.js").Change} change */
  #note(change) {
    if (change.kind === "scores") for (const name of Object.keys(change.scores)) this.changed.add(name);
    else if (change.kind === "event") this.changed.add(change.event.stream);
    else {
      this.isOrderOld = true;
      if (change.kind === "stream") this.changed.add(change.name);
      else for (const name of this.store.streams.keys()) this.changed.add(name);
    }
    this.frame.ask();
  }

  /** Keep the ages up to date. */
  #tick() {
    for (const row of this.rows.values()) if (row.isOnScreen) this.changed.add(row.name);
    this.frame.ask();
  }

  /** Rows stay where they are while someone points at them. */
  #reorder() {
    if (this.body.matches(":hover, :focus-within")) return;
    this.isOrderOld = true;
    this.frame.ask();
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #seen(entries) {
    for (const entry of entries) {
      const row = this.rows.get(/** @type {HTMLElement} */ (entry.target).dataset.stream ?? "");
      if (!row) continue;
      row.isOnScreen = entry.isIntersecting;
      if (row.isOnScreen) this.changed.add(row.name);
    }
    this.frame.ask();
  }

  #draw() {
    if (this.isOrderOld) this.#arrange();
    const now = this.store.now();
    for (const name of this.changed) {
      const row = this.rows.get(name);
      const stream = this.store.streams.get(name);
      if (row?.isOnScreen && stream) write(row, stream, now);
    }
    this.changed.clear();
    this.#headline();
  }

  /** The rows that pass the filter, in order. */
  #arrange() {
    this.isOrderOld = false;
    const shown = [...this.store.streams.values()].filter(passes).sort(compare);
    this.#forgetDeleted();
    setText(this.none, shown.length ? "" : "No stream matches the filter.");
    let next = this.body.firstElementChild;
    let made = 0;
    for (const { name } of shown) {
      const known = this.rows.get(name);
      if (!known && ++made > ROWS_A_FRAME) return this.#later();
      const row = known ?? this.#newRow(name);
      if (row.element === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.element, next);
    }
    this.#removeFrom(next);
  }

  /** Make the other rows in the next frame, so that the first ones are seen at once. */
  #later() {
    this.isOrderOld = true;
    this.frame.ask();
  }

  /** @param {Element | null} row the first of the rows that do not pass the filter */
  #removeFrom(row) {
    while (row) {
      const next = row.nextElementSibling;
      row.remove();
      row = next;
    }
  }

  #forgetDeleted() {
    for (const [name, row] of this.rows) {
      if (this.store.streams.has(name)) continue;
      this.screen.unobserve(row.element);
      row.element.remove();
      this.rows.delete(name);
    }
  }

  /** @param {string} name */
  #newRow(name) {
    const stream = /** @type {Stream} */ (this.store.streams.get(name));
    const row = newRow(stream);
    write(row, stream, this.store.now());
    this.rows.set(name, row);
    this.screen.observe(row.element);
    return row;
  }

  #headline() {
    const totals = new Map(STATE_ORDER.map((state) => [state, 0]));
    for (const { state } of this.store.streams.values()) totals.set(state, (totals.get(state) ?? 0) + 1);
    const open = [...this.store.streams.values()].filter((stream) => stream.open_event).length; // also of silent streams
    setText(this.heading, headline(open, totals, this.store.streams.size));
    const entries = /** @type {[State | "", string, number][]} */ ([
      ["", "All", this.store.streams.size],
      ...STATE_ORDER.map((state) => [state, STATES[state], totals.get(state)]),
    ]);
    if (!this.chips.children.length)
      fill(
        this.chips,
        entries.map(([state, label]) => this.#chip(state, label)),
      );
    entries.forEach(([state, , total], k) => {
      setAttribute(this.chips.children[k], "aria-pressed", String(chosen.state === state));
      /** @type {HTMLElement} */ (this.chips.children[k]).hidden = !total && state !== "" && state !== chosen.state;
      setText(/** @type {Element} */ (this.chips.children[k].lastElementChild), count(total));
    });
  }

  /** @param {State | ""} state @param {string} label */
  #chip(state, label) {
    return h(
      "button",
      { type: "button", class: "chip", onclick: () => this.#filter({ state }) },
      state && icon(state),
      h("span", {}, label),
      h("b"),
    );
  }
}

/** @param {string} id */
function sortName(id) {
  return id !== chosen.column ? "none" : chosen.descends ? "descending" : "ascending";
}

/** @param {number} open @param {Map<State, number>} totals @param {number} all */
function headline(open, totals, all) {
  const rest = /** @type {State[]} */ (["paused", "disconnected", "silent"])
    .filter((state) => totals.get(state))
    .map((state) => `${count(totals.get(state) ?? 0)} ${state}`);
  const first = open
    ? `${count(open)} of ${counted(all, "stream")} ${open === 1 ? "has" : "have"} an open event`
    : `No open event in ${counted(all, "stream")}`;
  return [first, ...rest].join(", ");
}

/** @param {Stream} stream */
function passes(stream) {
  if (chosen.state && stream.state !== chosen.state) return false;
  const words = [stream.name, stream.detector, ...(stream.open_event?.variables ?? []).map(([name]) => name)];
  return words.join("\n").toLowerCase().includes(chosen.text.trim().toLowerCase());
}

/** @param {Stream} one @param {Stream} other */
function compare(one, other) {
  const { key } = /** @type {typeof COLUMNS[number]} */ (COLUMNS.find(({ id }) => id === chosen.column));
  const [a, b] = [key(one), key(other)];
  const order = a < b ? -1 : a > b ? 1 : 0;
  return (chosen.descends ? -order : order) || (one.name < other.name ? -1 : 1);
}

/** @param {Stream} stream @returns {Row} */
function newRow(stream) {
  const drawn = spark();
  const cells = Object.fromEntries(
    ["state", "score", "event", "budget", "drift", "last"].map((id) => [id, h("span", { class: "value" })]),
  );
  const link = h("a", { href: `#/streams/${encodeURIComponent(stream.name)}` }, stream.name);
  const meter = h("i", { class: "meter", "aria-hidden": "true" });
  const element = h("tr", { role: "row", "data-stream": stream.name }, [
    cell("name", "Stream", link, h("span", { class: "aside" }, stream.detector)),
    cell("state", "State", cells.state),
    cell("score", "Score", drawn.element, cells.score),
    cell("event", "Open event", cells.event),
    cell("budget", "Budget used", meter, cells.budget),
    cell("drift", "Drift", cells.drift),
    cell("last", "Last reading", cells.last),
  ]);
  return {
    name: stream.name,
    element,
    cells: { ...cells, meter },
    spark: drawn,
    isOnScreen: false,
    shownState: "",
    shownEvent: "",
  };
}

/** @param {string} id @param {string} label @param {...import("./dom.js").Child} content */
function cell(id, label, ...content) {
  return h("td", { role: "cell", class: id, "data-name": label }, ...content);
}

/** @param {Row} row @param {Stream} stream @param {number} now */
function write(row, stream, now) {
  const { cells } = row;
  writeState(row, stream);
  setText(cells.score, number(stream.score));
  setAttribute(cells.score, "class", `value${stream.flagged ? " over" : ""}`);
  writeEvent(row, stream, now);
  setText(cells.budget, percent(stream.budget_used));
  setAttribute(cells.budget, "class", `value${(stream.budget_used ?? 0) > 1 ? " over" : ""}`);
  cells.meter.style.setProperty("--part", `${Math.min(100 * (stream.budget_used ?? 0), 100).toFixed(0)}%`);
  cells.meter.hidden = stream.budget_used === null;
  setText(cells.drift, driftName(stream.drift));
  setAttribute(cells.drift, "class", `value ${driftName(stream.drift)}`);
  setText(cells.last, ago(stream.last_received ?? stream.last_time, now));
  if (row.isOnScreen) drawSpark(row.spark, stream.recent);
}

/** @param {Row} row @param {Stream} stream */
function writeState(row, stream) {
  if (row.shownState === stream.state) return;
  row.shownState = stream.state;
  fill(row.cells.state, icon(stream.state), STATES[stream.state]);
  setAttribute(row.element, "class", stream.state);
}

/** @param {Row} row @param {Stream} stream @param {number} now */
function writeEvent(row, stream, now) {
  const event = stream.open_event;
  row.element.classList.toggle("notice", event?.level === "notice");
  const shown = event ? `${event.id} ${event.level} ${severityName(event.severity)}` : (stream.reason ?? "");
  if (row.shownEvent !== shown || !row.cells.event.firstChild) {
    row.shownEvent = shown;
    const top = event?.variables[0]?.[0];
    const link =
      event &&
      h(
        "a",
        { href: `#/events/${event.id}`, "aria-label": `${top ?? ""} Event ${event.number} of ${stream.name}`.trim() },
        top ?? `Event ${event.number}`,
      );
    fill(
      row.cells.event,
      link ?? (stream.reason ? h("span", { class: "reason", title: stream.reason }, stream.reason) : "–"),
      h("span", { class: "aside" }),
    );
  }
  const since = event && lasted(event, now);
  const length = since === null ? "" : ` for ${duration(since)}`;
  setText(
    /** @type {Element} */ (row.cells.event.lastElementChild),
    event ? `${event.level === "notice" ? "notice" : severityName(event.severity)}${length}` : "",
  );
}
