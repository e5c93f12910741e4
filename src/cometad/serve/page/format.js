// Numbers, times and durations as text. Times are in the viewer's time zone.

const MINUTE = 60,
  HOUR = 3600,
  DAY = 86400;
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A score or reading: about three digits. @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return WHOLE.format(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3);
}

/** @param {number} value */
export function count(value) {
  return WHOLE.format(value);
}

/** "1 event", "2 events". @param {number} value @param {string} one @param {string} [many] */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${WHOLE.format(100 * share)} %`;
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.max(0, seconds);
  if (whole < 1) return "under 1 s";
  if (whole < 100) return `${Math.round(whole)} s`;
  if (whole < 100 * MINUTE) return `${Math.round(whole / MINUTE)} min`;
  if (whole < 48 * HOUR) return `${parseFloat((whole / HOUR).toFixed(1))} h`;
  return `${Math.round(whole / DAY)} days`;
}

/** @param {number | null | undefined} time @param {number} now */
export function ago(time, now) {
  if (time === null || time === undefined) return "never";
  const since = now - time;
  return since < 2 ? "now" : `${duration(since)} ago`;
}

/** A time of day with its zone, and with the date unless that is today. @param {number | null | undefined} time epoch seconds */
export function moment(time) {
  if (time === null || time === undefined) return "–";
  const date = new Date(1000 * time);
  return isToday(date) ? clock(date) : `${day(date)} ${clock(date)}`;
}

/** A date and time with its zone. @param {number | null | undefined} time epoch seconds */
export function dateTime(time) {
  if (time === null || time === undefined) return "–";
  const date = new Date(1000 * time);
  return `${day(date)} ${clock(date)}`;
}

/** @param {Date} date */
function isToday(date) {
  return date.toDateString() === new Date().toDateString();
}

/** @param {Date} date */
function day(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** @param {Date} date */
function clock(date) {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ${zone(date)}`;
}

/** The zone of the viewer at a time: UTC, UTC+1 or UTC−3:30. @param {Date} date */
function zone(date) {
  const east = -date.getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(east) / 60), Math.abs(east) % 60];
  return east ? `UTC${east < 0 ? "−" : "+"}${hours}${minutes ? `:${two(minutes)}` : ""}` : "UTC";
}

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, "0");
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** @param {number} severity from 0 to 1 */
export function severityName(severity) {
  return severity >= 2 / 3 ? "high" : severity >= 1 / 3 ? "medium" : "low";
}

/** @param {import("./types.js").Budget | undefined} budget */
export function budgetName(budget) {
  if (budget?.rate) return `${parseFloat((100 * budget.rate).toPrecision(3))} % of readings flagged`;
  const daily = budget?.alerts_per_day;
  if (budget?.alerts)
    return `${counted(budget.alerts, "alert")} per ${count(budget.per ?? 1000)} readings${daily ? `, at most ${daily} a day` : ""}`;
  return daily ? `${daily} ${daily === 1 ? "alert" : "alerts"} a day` : "Set by the detector";
}

/** @param {import("./types.js").Level} level */
export function levelName(level) {
  return level === "alert" ? "Alert" : "Notice";
}

/** How far the scores have moved from those of training. @param {number | null | undefined} drift */
export function driftName(drift) {
  if (drift === null || drift === undefined) return "–";
  if (drift >= 0.95) return "strong";
  return drift >= 0.8 ? "some" : "none";
}

/** The words for a state. @type {Record<import("./types.js").State, string>} */
export const STATES = {
  event: "Event",
  disconnected: "Disconnected",
  paused: "Paused",
  silent: "Silent",
  waiting: "Waiting",
  normal: "Normal",
};
