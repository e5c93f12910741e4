// A tiny plot of the last scores against their threshold.

import { svg } from "./dom.js";

const WIDE = 100,
  HIGH = 24;

/** @typedef {{element: SVGElement, score: SVGElement, above: SVGElement, threshold: SVGElement}} Spark */

/** @returns {Spark} */
export function spark() {
  const [threshold, score, above] = ["threshold", "score", "above"].map((kind) =>
    svg("path", { class: `curve ${kind}` }),
  );
  const box = { class: "spark", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return { element: svg("svg", box, threshold, score, above), score, above, threshold };
}

/** @param {Spark} drawn @param {import("./types.js").Recent | undefined} recent */
export function drawSpark(drawn, recent) {
  const { scores, thresholds } = recent ?? { scores: [], thresholds: [] };
  const place = scale(scores, thresholds);
  drawn.score.setAttribute(
    "d",
    line(scores, place, () => true),
  );
  drawn.above.setAttribute(
    "d",
    line(scores, place, (k) => isAbove(scores, thresholds, k) || isAbove(scores, thresholds, k - 1)),
  );
  drawn.threshold.setAttribute(
    "d",
    line(thresholds, place, () => true),
  );
}

/** @param {(number | null)[]} scores @param {(number | null)[]} thresholds @param {number} k */
function isAbove(scores, thresholds, k) {
  const score = scores[k],
    threshold = thresholds[k];
  return score != null && threshold != null && score > threshold;
}

/**
 * Where a value lies from top to bottom: linear up to the threshold and logarithmic above it, as in reports, because
 * high peaks would flatten everything else.
 * @param {(number | null)[]} scores
 * @param {(number | null)[]} thresholds
 */
function scale(scores, thresholds) {
  let low = Infinity,
    high = -Infinity,
    line = -Infinity;
  for (const value of scores) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (const value of thresholds) if (value !== null) [low, line] = [Math.min(low, value), Math.max(line, value)];
  const unit = line - low || 1;
  const part = (/** @type {number} */ value) =>
    value <= line ? (value - low) / unit : 1 + Math.log((value - low) / unit);
  const top = Math.max(part(high), 1.5);
  return (/** @type {number} */ value) => HIGH - 1.5 - ((HIGH - 3) * part(value)) / top;
}

/**
 * @param {(number | null)[]} values
 * @param {(value: number) => number} place
 * @param {(index: number) => boolean} isDrawn whether the line that ends at an index is drawn
 */
function line(values, place, isDrawn) {
  const step = WIDE / Math.max(values.length - 1, 1);
  let path = "",
    joined = false;
  values.forEach((value, k) => {
    if (value === null) joined = false;
    else {
      path += `${joined && isDrawn(k) ? "L" : "M"}${(k * step).toFixed(1)} ${place(value).toFixed(1)}`;
      joined = true;
    }
  });
  return path;
}
