// The chart of scores and thresholds, with events as bands and a link above each.

import { chart, drawStretches, line } from "./chart.js";
import { h, legend, onceAFrame, setText } from "./dom.js";
import { count, counted, moment, number } from "./format.js";

/** @typedef {import("./types.js").EventSummary} EventSummary */
/** @typedef {{places: number[], scores: (number | null)[], thresholds: (number | null)[], isTime: boolean}} Curves */

const HEIGHT = 260,
  LOW_HEIGHT = 180;
const LOGARITHMIC_FROM = 8; // thresholds: a higher peak would flatten the rest of a linear axis
const NEAR = 30; // px between the links of two events

export class ScoreChart {
  /**
   * @param {{onZoom?: (from: number, to: number) => void, isLow?: boolean}} [options]
   */
  constructor({ onZoom, isLow = false } = {}) {
    this.onZoom = onZoom;
    this.height = isLow ? LOW_HEIGHT : HEIGHT;
    this.badges = h("div", { class: "badges over" });
    this.plot = h("div", { class: "chart", role: "img" });
    this.readout = h("p", { class: "readout", "aria-hidden": "true" });
    this.element = h(
      "div",
      { class: "score-chart" },
      h("div", { class: "chart-head" }, this.#legend(), this.readout),
      this.badges,
      this.plot,
    );
    this.frame = onceAFrame(() => this.#draw());
    /** @type {ReturnType<typeof chart> | null} */
    this.chart = null;
    /** @type {Curves} */
    this.curves = { places: [], scores: [], thresholds: [], isTime: true };
    /** @type {EventSummary[]} */
    this.events = [];
    this.isSteep = false;
    /** @type {[number, number] | null} */
    this.range = null;
  }

  /** New curves, over a range or else over all of their width. @param {Curves} curves @param {[number, number] | null} range */
  show(curves, range = null) {
    const wasTime = this.curves.isTime;
    this.curves = curves;
    this.range = range;
    const isSame = this.chart && wasTime === curves.isTime && this.isSteep === this.#steepFrom() > 0;
    if (isSame) this.#draw();
    else this.#rebuild();
    this.describe();
  }

  /** @param {EventSummary[]} events */
  mark(events) {
    this.events = events;
    this.frame.ask();
  }

  /** Points at the right end. @param {import("./types.js").Point[]} points @param {number | null} span seconds to show, or null for all */
  append(points, span) {
    const { places, scores, thresholds } = this.curves;
    for (const [time, score, threshold] of points) {
      const place = time ?? (places.at(-1) ?? -1) + 1;
      if (places.length && place <= /** @type {number} */ (places.at(-1))) continue;
      places.push(place);
      scores.push(score);
      thresholds.push(threshold);
    }
    const last = places.at(-1);
    if (last === undefined) return;
    if (span !== null) {
      const gone = places.findIndex((place) => place >= last - span);
      for (const list of [places, scores, thresholds]) list.splice(0, gone);
      this.range = [Math.max(last - span, places[0]), last];
    } else this.range = null;
    this.frame.ask();
  }

  /** Put what the chart shows in words, for those who cannot see it. */
  describe() {
    const { places, scores, thresholds } = this.curves;
    if (!places.length) return this.plot.setAttribute("aria-label", "No scores yet.");
    const known = scores.map((score) => score ?? -Infinity);
    const peak = known.indexOf(known.reduce((most, score) => Math.max(most, score)));
    const inside = this.#stretches().filter(
      ({ start, stop }) => stop >= places[0] && start <= /** @type {number} */ (places.at(-1)),
    );
    const when = `from ${this.#place(places[0])} to ${this.#place(/** @type {number} */ (places.at(-1)))}`;
    const highest = `The highest is ${number(scores[peak])} at ${this.#place(places[peak])}`;
    const rest = `the threshold is ${number(thresholds.at(-1))}; ${counted(inside.length, "event")}.`;
    this.plot.setAttribute("aria-label", `Scores ${when}. ${highest}, ${rest}`);
  }

  destroy() {
    this.frame.cancel();
    this.chart?.destroy();
    this.chart = null;
  }

  #legend() {
    return legend([
      ["curve score", "score"],
      ["curve threshold", "threshold"],
      ["event", "event"],
    ]);
  }

  /** @param {number} place */
  #place(place) {
    return this.curves.isTime ? moment(place) : `step ${count(place)}`;
  }

  /** A new chart, because a chart cannot change the kind of its axes. */
  #rebuild() {
    this.chart?.destroy();
    const unit = this.#steepFrom();
    this.isSteep = unit > 0;
    const up = unit ? { distr: 4, asinh: unit, range: this.#vertical } : { range: this.#vertical };
    const drag = { x: Boolean(this.onZoom), y: false, setScale: false };
    this.chart = chart(this.plot, this.#data(), {
      height: this.height,
      isTime: this.curves.isTime,
      ...(unit
        ? {
            splits: (
              /** @type {unknown} */ _,
              /** @type {number} */ __,
              /** @type {number} */ low,
              /** @type {number} */ high,
            ) => steepTicks(unit, low, high),
          }
        : {}),
      series: [{}, line("score"), line("threshold", [7, 4])],
      scales: { x: { range: () => this.#horizontal() }, y: /** @type {any} */ (up) },
      cursor: {
        sync: { key: "time", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag,
        points: { size: 7 },
      },
      hooks: {
        drawAxes: [(drawn) => drawStretches(drawn, this.#stretches())],
        draw: [() => this.#placeBadges()],
        setCursor: [() => this.#read()],
        setSelect: [(drawn) => this.#select(drawn)],
      },
    });
    this.#read();
  }

  /** The threshold if some scores are far above it, else 0. */
  #steepFrom() {
    const threshold = this.curves.thresholds.findLast((value) => value !== null) ?? 0;
    const highest = this.curves.scores.reduce((/** @type {number} */ most, score) => Math.max(most, score ?? most), 0);
    return threshold > 0 && highest > LOGARITHMIC_FROM * threshold ? threshold : 0;
  }

  /** @returns {import("uplot").AlignedData} */
  #data() {
    return [this.curves.places, this.curves.scores, this.curves.thresholds];
  }

  /** @returns {[number, number]} */
  #horizontal() {
    const { places } = this.curves;
    const [first, last] = this.range ?? [places[0] ?? 0, places.at(-1) ?? 1];
    return first < last ? [first, last] : [first - 0.5, first + 0.5];
  }

  /**
   * @param {unknown} _
   * @param {number | null} low
   * @param {number | null} high
   * @returns {[number, number]}
   */
  #vertical(_, low, high) {
    if (low === null || high === null) return [0, 1];
    const margin = 0.08 * (high - Math.min(low, 0)) || 1;
    return [low < 0 ? low - margin : 0, high + margin];
  }

  #stretches() {
    const last = this.curves.places.at(-1) ?? 0;
    const { isTime } = this.curves;
    return this.events.map((event) => {
      const start = (isTime ? event.start_time : event.start) ?? 0;
      const stop = event.state === "open" ? last : ((isTime ? event.stop_time : event.stop) ?? start);
      return { event, start, stop: Math.max(stop, start) };
    });
  }

  #draw() {
    if (!this.chart) return;
    const { drawn } = this.chart;
    const [min, max] = this.#horizontal();
    drawn.batch(() => {
      drawn.setData(this.#data(), false);
      drawn.setScale("x", { min, max });
    });
    this.#read();
  }

  /** A numbered link above each event, the most severe first, while there is room. */
  #placeBadges() {
    if (!this.chart) return;
    const { drawn } = this.chart;
    const { left, width } = drawn.over.getBoundingClientRect();
    const offset = left - this.badges.getBoundingClientRect().left;
    /** @type {{event: EventSummary, at: number}[]} */
    const placed = [];
    for (const { event, start, stop } of this.#stretches().sort((a, b) => b.event.severity - a.event.severity)) {
      const at = drawn.valToPos((start + stop) / 2, "x");
      if (at < 0 || at > width || placed.some((other) => Math.abs(other.at - at) < NEAR)) continue;
      placed.push({ event, at });
    }
    this.#showBadges(placed.map(({ event, at }) => ({ event, at: at + offset })));
  }

  /** @param {{event: EventSummary, at: number}[]} placed */
  #showBadges(placed) {
    const kept = new Map(
      [...this.badges.children].map((link) => [link.getAttribute("href"), /** @type {HTMLElement} */ (link)]),
    );
    const links = placed
      .sort((a, b) => a.at - b.at)
      .map(({ event, at }) => {
        const href = `#/events/${event.id}`;
        const link = kept.get(href) ?? h("a", { href, "aria-label": `Event ${event.number}` }, event.number);
        link.style.left = `${at.toFixed(1)}px`;
        return link;
      });
    const isSame = links.length === kept.size && links.every((link, k) => this.badges.children[k] === link);
    if (!isSame) this.badges.replaceChildren(...links); // else a link would lose the focus
  }

  /** The values at the cursor, or the last ones. */
  #read() {
    const { places, scores, thresholds } = this.curves;
    const k = this.chart?.drawn.cursor.idx ?? places.length - 1;
    if (k < 0 || k >= places.length) return setText(this.readout, "");
    setText(
      this.readout,
      `${this.#place(places[k])} · score ${number(scores[k])} · threshold ${number(thresholds[k])}`,
    );
  }

  /** @param {import("uplot")} drawn */
  #select(drawn) {
    const { left, width } = drawn.select;
    if (width < 5 || !this.onZoom) return;
    const [from, to] = [drawn.posToVal(left, "x"), drawn.posToVal(left + width, "x")];
    drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom(from, to);
  }
}

/** Zero and round values from the threshold up, each about twice the last. @param {number} unit @param {number} low @param {number} high */
function steepTicks(unit, low, high) {
  const ticks = [Math.max(low, 0)];
  for (let power = 10 ** Math.floor(Math.log10(unit)); power <= high; power *= 10) {
    ticks.push(...[power, 2 * power, 5 * power].filter((value) => value >= 1.5 * unit && value <= high));
  }
  return ticks.length > 6 ? ticks.filter((value) => value === ticks[0] || Number.isInteger(Math.log10(value))) : ticks;
}
