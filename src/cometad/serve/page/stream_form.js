// The form that creates a stream or changes its settings.

import { path, send } from "./api.js";
import { h } from "./dom.js";
import { field, form, input } from "./forms.js";

/** @typedef {Record<string, any>} Settings */
/** @typedef {"alerts" | "alerts_per_day" | "rate"} BudgetKind */

export const ALERT_FROM = 0.15; // the default mark
const KINDS = /** @type {[BudgetKind | "", string][]} */ ([
  ["", "Set by the detector"],
  ["alerts", "Alerts per readings"],
  ["alerts_per_day", "Alerts a day"],
  ["rate", "Flagged readings (%)"],
]);

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
        field(
          "Longest event",
          input({ name: "longest", type: "number", min: "1", step: "1", placeholder: "64", value: settings.longest }),
          "Readings after which an event that lasts closes as a new level, at most 8 hours.",
        ),
        field(
          "Alert from severity",
          input({ name: "alert_from", type: "number", min: "0", max: "1", step: "any", placeholder: ALERT_FROM, value: settings.alert_from }),
          "Less severe events are notices: listed, never sent.",
        ),
      ]),
    ),
  );
}

/** @param {import("./types.js").Budget | undefined} budget */
function budgetFields(budget) {
  const kind = KINDS.map(([id]) => id).find((id) => id && budget?.[id]) ?? "";
  const value = budget?.rate ? parseFloat((100 * budget.rate).toPrecision(6)) : kind && budget?.[kind];
  const amount = input({
    name: "amount",
    type: "number",
    min: "0",
    step: "any",
    value,
    required: true,
  });
  const per = input({ name: "per", type: "number", min: "1", step: "any", value: budget?.per ?? 1000, required: true });
  const most = input({
    name: "alerts_per_day",
    type: "number",
    min: "0",
    step: "any",
    value: kind === "alerts" ? budget?.alerts_per_day : null,
  });
  const more = [field("Per readings", per), field("At most a day", most, "Empty: no daily limit.")];
  const amountField = field("Amount", amount);
  const show = (/** @type {string} */ chosen) => {
    amountField.hidden = amount.disabled = !chosen;
    more.forEach((each) => (each.hidden = chosen !== "alerts"));
    per.disabled = most.disabled = chosen !== "alerts";
  };
  show(kind);
  const choose = (/** @type {Event} */ event) => show(/** @type {HTMLSelectElement} */ (event.target).value);
  const select = h(
    "select",
    { name: "budget", onchange: choose },
    KINDS.map(([id, label]) => h("option", { value: id, selected: id === kind }, label)),
  );
  return [field("Budget", select), amountField, ...more];
}

/** @param {string} label @param {string} name @param {number} value @param {string} hint */
function whole(label, name, value, hint) {
  return field(label, input({ name, type: "number", min: "0", step: "1", value }), hint);
}

/** @param {FormData} values @param {string} name */
function text(values, name) {
  return String(values.get(name) ?? "").trim();
}

/** A number, or null if the field is empty. @param {FormData} values @param {string} name */
function optional(values, name) {
  return text(values, name) ? Number(text(values, name)) : null;
}

/** @param {BudgetKind} kind @param {FormData} values */
function budgetOf(kind, values) {
  const amount = optional(values, "amount");
  if (kind === "rate") return { rate: /** @type {number} */ (amount) / 100 };
  if (kind === "alerts_per_day") return { alerts_per_day: amount };
  return { alerts: amount, per: optional(values, "per"), alerts_per_day: optional(values, "alerts_per_day") };
}

/** @param {string} name @param {FormData} values @param {((stream: import("./types.js").Stream) => void) | undefined} done */
async function save(name, values, done) {
  const kind = /** @type {BudgetKind | ""} */ (text(values, "budget"));
  const counts = ["merge_gap", "min_length", "hold_off"].map((each) => [each, Number(text(values, each))]);
  const marks = ["longest", "alert_from"].map((each) => [each, optional(values, each)]);
  const stream = await send("PUT", path("v1/streams", [name]), {
    detector: text(values, "detector"),
    budget: kind ? budgetOf(kind, values) : null,
    period: text(values, "period") || null,
    resample: text(values, "resample") || null,
    late: text(values, "late"),
    ...Object.fromEntries([...counts, ...marks]),
  });
  done?.(stream);
  return "Saved.";
}
