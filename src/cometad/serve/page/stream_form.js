// The form that creates a stream or changes its settings.

import { path, send } from "./api.js";
import { h } from "./dom.js";
import { field, form, input } from "./forms.js";

/** @typedef {Record<string, any>} Settings */

/**
 * @param {string[]} detectors
 * @param {{name?: string, settings?: Settings, done?: (stream: import("./types.js").Stream) => void}} [current]
 */
export function streamForm(detectors, { name, settings = {}, done } = {}) {
  const options = detectors.map((each) => h("option", { selected: each === settings.detector }, each));
  const late = ["refuse", "drop"].map((each) => h("option", { selected: each === settings.late }, each));
  return form(
    name ? "Save the settings" : "Create the stream",
    (values) => save(name ?? text(values, "name"), values, done),
    h("div", { class: "fields" }, [
      !name && field("Name", input({ name: "name", required: true, placeholder: "pump-7" })),
      field("Detector", h("select", { name: "detector", required: true }, options)),
      ...budgetFields(settings.budget),
      field(
        "Period",
        input({ name: "period", placeholder: "1s", value: settings.period }),
        "Time between readings. Empty: that of the series the detector was fitted on.",
      ),
    ]),
    h(
      "details",
      {},
      h("summary", {}, "More settings"),
      h("div", { class: "fields" }, [
        field(
          "Resample",
          input({ name: "resample", placeholder: "60s:mean", value: settings.resample }),
          "Empty: readings are scored as they come.",
        ),
        field("Late readings", h("select", { name: "late" }, late)),
        whole("Merge gap", "merge_gap", settings.merge_gap ?? 0, "Steps between flags that still count as one event."),
        whole("Least length", "min_length", settings.min_length ?? 1, "Flagged steps that make an event."),
        whole("Hold-off", "hold_off", settings.hold_off ?? 0, "Steps after an event before the next may open."),
      ]),
    ),
  );
}

/** @param {import("./types.js").Budget | undefined} budget */
function budgetFields(budget) {
  const kind = budget?.rate ? "rate" : budget?.alerts_per_day ? "alerts_per_day" : "";
  const value = budget?.rate ? parseFloat((100 * budget.rate).toPrecision(6)) : budget?.alerts_per_day;
  const kinds = [
    ["", "Set by the detector"],
    ["rate", "Flagged readings (%)"],
    ["alerts_per_day", "Alerts a day"],
  ];
  const amount = input({
    name: "amount",
    type: "number",
    min: "0",
    step: "any",
    value,
    disabled: !kind,
    required: true,
  });
  const amountField = field("Amount", amount);
  amountField.hidden = !kind;
  const choose = (/** @type {Event} */ event) => {
    amount.disabled = !(/** @type {HTMLSelectElement} */ (event.target).value);
    amountField.hidden = amount.disabled;
  };
  const select = h(
    "select",
    { name: "budget", onchange: choose },
    kinds.map(([id, label]) => h("option", { value: id, selected: id === kind }, label)),
  );
  return [field("Budget", select), amountField];
}

/** @param {string} label @param {string} name @param {number} value @param {string} hint */
function whole(label, name, value, hint) {
  return field(label, input({ name, type: "number", min: "0", step: "1", value }), hint);
}

/** @param {FormData} values @param {string} name */
function text(values, name) {
  return String(values.get(name) ?? "").trim();
}

/** @param {string} name @param {FormData} values @param {((stream: import("./types.js").Stream) => void) | undefined} done */
async function save(name, values, done) {
  const kind = text(values, "budget");
  const amount = Number(text(values, "amount"));
  const budget = !kind ? null : kind === "rate" ? { rate: amount / 100 } : { alerts_per_day: amount };
  const counts = ["merge_gap", "min_length", "hold_off"].map((each) => [each, Number(text(values, each))]);
  const stream = await send("PUT", path("v1/streams", [name]), {
    detector: text(values, "detector"),
    budget,
    period: text(values, "period") || null,
    resample: text(values, "resample") || null,
    late: text(values, "late"),
    ...Object.fromEntries(counts),
  });
  done?.(stream);
  return "Saved.";
}
