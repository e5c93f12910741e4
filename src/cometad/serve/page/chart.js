// What all charts share: uPlot with the colors of the stylesheet, 24-hour times and the width of its place.

import { number } from "./format.js";

/** @typedef {import("uplot")} uPlot */
/** @typedef {import("uplot").Options} Options */
/** @typedef {import("uplot").AlignedData} Data */

/** @type {typeof import("uplot")} */
const UPlot = /** @type {any} */ (globalThis).uPlot;
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const DARK = matchMedia("(prefers-color-scheme: dark)");

// Per tick distance in seconds: the label, and what is added below it where the year, month or day changes.
const DAY = "\n{YYYY}-{MM}-{DD}";
const TIMES = [
  [365 * 86400, "{YYYY}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
];

const CLOCK = TIMES.map(([distance, label]) => [distance, label, null, null, null, null, null, null, 1]);
const LOW = 150; // px below which a chart shows no dates under its times

/** @type {Map<string, string>} */
const colors = new Map();

/** A color of the stylesheet by name. @param {string} name @param {number} [opacity] */
export function color(name, opacity = 1) {
  const value = colors.get(name) ?? getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colors.set(name, value);
  return opacity === 1
    ? value
    : value +
        Math.round(255 * opacity)
          .toString(16)
          .padStart(2, "0");
}

/**
 * A chart that follows the width of its element and the color scheme.
 * @param {HTMLElement} element
 * @param {Data} data
 * @param {Partial<Options> & {height: number, isTime: boolean, series: any[], splits?: any}} options
 */
export function chart(element, data, { isTime, splits, ...options }) {
  const width = () => Math.max(element.clientWidth, 100);
  const scales = { ...options.scales, x: { time: isTime, ...options.scales?.x } };
  const drawn = new UPlot(
    { ...common(isTime, options.height < LOW, splits), ...options, scales, width: width() },
    data,
    element,
  );
  const sizes = new ResizeObserver(
    () => width() !== drawn.width && drawn.setSize({ width: width(), height: options.height }),
  );
  const recolor = () => {
    colors.clear();
    drawn.redraw(false, true);
  };
  sizes.observe(element);
  DARK.addEventListener("change", recolor);
  const destroy = () => {
    sizes.disconnect();
    DARK.removeEventListener("change", recolor);
    drawn.destroy();
  };
  return { drawn, destroy };
}

/** @param {boolean} isTime @param {boolean} isLow @param {any} [splits] @returns {any} */
function common(isTime, isLow, splits) {
  const shared = {
    stroke: () => color("quiet"),
    font: FONT,
    grid: { stroke: () => color("grid"), width: 1 },
    ticks: { show: false },
  };
  const across = { size: isLow ? 26 : 42, space: 68, ...(isTime ? { values: isLow ? CLOCK : TIMES } : {}) };
  const up = {
    size: 52,
    space: isLow ? 22 : 32,
    values: (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => splits.map(label),
  };
  return {
    legend: { show: false },
    padding: [8, 30, 0, 0],
    axes: [
      { ...shared, ...across },
      { ...shared, ...up, ...(splits ? { splits } : {}) },
    ],
    cursor: { sync: { key: "time", filters: { pub: isMove } }, points: { size: 7 }, drag: { x: false, y: false } },
  };
}

/** Only movements are shared between charts; a drag in one must not zoom the others. @param {string} type */
function isMove(type) {
  return type === "mousemove" || type === "mouseleave" || type === "mouseenter";
}

/** @param {number | null} value */
function label(value) {
  if (value === null) return "";
  return Math.abs(value) < 1e4 ? String(parseFloat(value.toPrecision(6))) : number(value);
}

/** A line of a chart. @param {string} name @param {number[]} [dash] @param {number} [width] */
export function line(name, dash, width = 1.5) {
  return { stroke: () => color(name), width, dash, points: { show: false } };
}

/**
 * The stretches of events behind the lines, with an edge where they start.
 * @param {uPlot} drawn
 * @param {{start: number, stop: number}[]} stretches
 */
export function drawStretches(drawn, stretches) {
  const { ctx, bbox } = drawn;
  const { min, max } = drawn.scales.x;
  if (min == null || max == null) return;
  ctx.save();
  for (const { start, stop } of stretches.filter((stretch) => stretch.stop >= min && stretch.start <= max)) {
    const left = drawn.valToPos(Math.max(start, min), "x", true);
    const right = drawn.valToPos(Math.min(stop, max), "x", true);
    ctx.fillStyle = color("event", 0.16);
    ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
    ctx.fillStyle = color("event");
    if (start >= min) ctx.fillRect(left - 1, bbox.top, 2, bbox.height);
  }
  ctx.restore();
}

/**
 * The horizontal axis of some times, which is a count of steps where they are unknown.
 * @param {(number | null)[]} times
 * @param {number[]} [steps]
 * @returns {{places: number[], isTime: boolean}}
 */
export function horizontal(times, steps) {
  const isTime = times.every((time) => time !== null);
  if (isTime) return { places: /** @type {number[]} */ (times), isTime };
  return { places: steps ?? times.map((_, k) => k), isTime };
}
