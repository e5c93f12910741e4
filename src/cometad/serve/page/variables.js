// What variables read and what was expected: one small chart each.

import { chart, color, drawStretches, horizontal, line } from "./chart.js";
import { fill, h, legend, setText } from "./dom.js";
import { percent } from "./format.js";

/** @typedef {import("./types.js").Variable} Variable */
/** @typedef {{start: number, stop: number}} Stretch */
/** @typedef {{variable: Variable, heading: HTMLElement, note: HTMLElement, plot: HTMLElement, element: HTMLElement, chart: ReturnType<typeof chart> | null, shape: string}} Panel */

const HEIGHT = 130;
const LEGEND = /** @type {[string, string][]} */ ([
  ["curve observed", "observed"],
  ["curve normal", "expected"],
  ["range", "normal range"],
]);

export class VariableCharts {
  constructor() {
    this.list = h("div", { class: "traces" });
    this.legend = legend([...LEGEND, ["event", "event"]]);
    this.element = h("div", {}, this.legend, this.list);
    /** @type {Panel[]} */
    this.panels = [];
    /** @type {Stretch[]} */
    this.stretches = [];
  }

  /**
   * @param {(number | null)[]} times
   * @param {Variable[]} variables
   * @param {Stretch[]} stretches of events
   * @param {string} empty what to say if there are none
   */
  show(times, variables, stretches, empty) {
    this.stretches = stretches;
    this.legend.hidden = variables.length === 0;
    if (!variables.length) {
      this.destroy();
      return fill(this.list, h("p", { class: "note" }, empty));
    }
    const known = new Map(this.panels.map((panel) => [panel.variable.name, panel]));
    const panels = variables.map((variable) => known.get(variable.name) ?? newPanel(variable));
    for (const panel of this.panels) if (!panels.includes(panel)) panel.chart?.destroy();
    this.panels = panels;
    if (
      panels.some((panel, k) => this.list.children[k] !== panel.element) ||
      this.list.children.length !== panels.length
    ) {
      fill(this.list, ...panels.map((panel) => panel.element));
    }
    panels.forEach((panel, k) => this.#update(panel, variables[k], times));
  }

  destroy() {
    for (const panel of this.panels) panel.chart?.destroy();
    this.panels = [];
  }

  /** @param {Panel} panel @param {Variable} variable @param {(number | null)[]} times */
  #update(panel, variable, times) {
    panel.variable = variable;
    const view = variable.view ? ` · ${variable.view} view` : "";
    setText(panel.heading, `${percent(variable.share)} share${view}`);
    setText(panel.note, variable.sentence);
    panel.plot.setAttribute("aria-label", `${variable.name}: observed and expected readings. ${variable.sentence}`);
    const { places, isTime } = horizontal(times);
    const data = /** @type {import("uplot").AlignedData} */ ([places, ...curves(variable)]);
    const shape = `${isTime} ${data.length}`;
    if (panel.chart && panel.shape === shape) return panel.chart.drawn.setData(data);
    panel.chart?.destroy();
    panel.shape = shape;
    panel.chart = this.#chart(panel.plot, data, isTime);
  }

  /** @param {HTMLElement} plot @param {import("uplot").AlignedData} data @param {boolean} isTime */
  #chart(plot, data, isTime) {
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const hasBand = data.length > 3;
    return chart(plot, data, {
      height: HEIGHT,
      isTime,
      series: [{}, line("score", undefined, 1.75), line("normal", [5, 4], 2), ...(hasBand ? [edge, edge] : [])],
      bands: hasBand ? [{ series: [3, 4], fill: () => color("normal", 0.16) }] : [],
      hooks: { drawAxes: [(drawn) => drawStretches(drawn, this.stretches)] },
    });
  }
}

/** @param {Variable} variable @returns {Panel} */
function newPanel(variable) {
  const heading = h("span");
  const note = h("p");
  const plot = h("div", { class: "chart", role: "img" });
  const element = h("div", { class: "trace" }, h("h3", {}, variable.name, heading), plot, note);
  return { variable, heading, note, plot, element, chart: null, shape: "" };
}

/** Observed, expected, and the upper and lower edge of the band if there is one. @param {Variable} variable */
function curves({ observed, expected, band }) {
  if (band === null) return [observed, expected];
  return [observed, expected, shifted(expected, band), shifted(expected, -band)];
}

/** @param {(number | null)[]} values @param {number} by */
function shifted(values, by) {
  return values.map((value) => (value === null ? null : value + by));
}
