// Requests to the service.

const KEY = "cometad-token"; // in sessionStorage: gone when the tab is closed

export class ApiError extends Error {
  /** @param {number} status 0 if there was no answer @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let onUnauthorized = () => {};

/** Call a function when the service asks for a token. @param {() => void} action */
export function whenUnauthorized(action) {
  onUnauthorized = action;
}

/** @param {string | null} token */
export function keepToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

/** @returns {Record<string, string>} */
function authorization() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * The answer of the service, whatever its body. Throws an ApiError unless it is a success.
 * @param {string} method
 * @param {string} path relative to the page, such as "v1/streams"
 * @param {{body?: BodyInit, type?: string, signal?: AbortSignal}} [options]
 */
export async function answer(method, path, { body, type, signal } = {}) {
  const headers = { ...authorization(), ...(type ? { "Content-Type": type } : {}) };
  const response = await fetch(path, { method, headers, body, signal, cache: "no-store" }).catch(unreachable);
  if (response.ok) return response;
  if (response.status === 401) onUnauthorized();
  throw new ApiError(response.status, await reason(response));
}

/** @param {unknown} error @returns {never} */
function unreachable(error) {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  throw new ApiError(0, "The service did not answer. Check that it is running, then try again.");
}

/** @param {Response} response */
async function reason(response) {
  try {
    return String((await response.json()).error);
  } catch {
    return `The service answered with status ${response.status}.`;
  }
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, signal) {
  return (await answer("GET", path, { signal })).json();
}

/** @param {string} method @param {string} path @param {unknown} [data] @returns {Promise<any>} */
export async function send(method, path, data) {
  const body = data === undefined ? {} : { body: JSON.stringify(data), type: "application/json" };
  const response = await answer(method, path, body);
  return response.status === 204 ? null : response.json();
}

/**
 * A path whose parts are escaped, with the query values that are given: path("v1/streams", ["a/b"], {top: 6}).
 * @param {string} start
 * @param {string[]} parts
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function path(start, parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return [start, ...parts.map(encodeURIComponent)].join("/") + (search ? `?${search}` : "");
}
