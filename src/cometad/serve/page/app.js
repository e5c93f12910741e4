// The page: routes, the live connection, and what is announced.

import { ApiError, get, keepToken, path, whenUnauthorized } from "./api.js";
import { DetectorsView } from "./detectors.js";
import { button, fill, h, setText } from "./dom.js";
import { EventView } from "./event.js";
import { EventsView } from "./events.js";
import { FleetView } from "./fleet.js";
import { counted, severityName } from "./format.js";
import { Live } from "./live.js";
import { SignInView } from "./sign_in.js";
import { StartView } from "./start.js";
import { RECENT, Store } from "./store.js";
import { StreamView } from "./stream.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").EventSummary} EventSummary */

const ANNOUNCE_AFTER = 1500; // ms: events that open together are announced together
const place = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

class App {
  constructor() {
    this.store = new Store();
    this.live = new Live({
      onMessage: (message) => this.#receive(message),
      onStatus: (status) => this.#connection(status),
    });
    /** @type {View | null} */
    this.view = null;
    /** @type {import("./types.js").Session | null} */
    this.session = null;
    /** @type {EventSummary[]} */
    this.opened = [];
    this.isAsking = false; // for a token
    this.wasLost = false;
    /** @type {number | undefined} */
    this.announcing = undefined;
    whenUnauthorized(() => this.#signIn());
    addEventListener("hashchange", () => this.#route());
    this.store.subscribe((change) => this.#note(change));
    place("sign-out").addEventListener("click", () => this.#signOut());
    document.querySelector(".skip")?.addEventListener("click", (event) => this.#skip(event));
  }

  async start() {
    this.isAsking = false;
    try {
      this.session = await get("v1/session");
      place("sign-out").hidden = !this.session?.tokens;
      this.live.start(); // before the streams are fetched, so that no change falls in between
      await this.#fetchStreams();
      this.#route();
    } catch (error) {
      if (!this.isAsking) this.#unreachable(error);
    }
  }

  async #fetchStreams() {
    const { streams } = await get(path("v1/streams", [], { recent: RECENT }));
    this.store.replace(streams);
  }

  /** @param {unknown} error */
  #unreachable(error) {
    const message = error instanceof ApiError ? error.message : String(error);
    const again = button("Try again", () => this.start(), { class: "main" });
    this.#show({
      title: "No answer",
      element: h(
        "div",
        {},
        h("h1", { tabindex: -1 }, "The service does not answer"),
        h("p", { class: "warning" }, message),
        again,
      ),
    });
  }

  #signIn() {
    if (this.isAsking) return;
    this.isAsking = true;
    this.live.stop();
    fill(place("connection"));
    fill(place("lost"));
    this.#show(new SignInView(() => this.start()));
  }

  #signOut() {
    keepToken(null);
    this.live.stop();
    location.reload();
  }

  /** A link would change the route. @param {Event} event */
  #skip(event) {
    event.preventDefault();
    place("view").querySelector("h1")?.focus();
  }

  #route() {
    if (this.isAsking || !this.session) return;
    const [route, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [kind, ...rest] = route.split("/");
    this.#show(this.#viewOf(kind, decodeURIComponent(rest.join("/")), new URLSearchParams(query)));
    this.#current(kind);
  }

  /** @param {string} kind @param {string} name @param {URLSearchParams} query @returns {View} */
  #viewOf(kind, name, query) {
    const canWrite = this.#canWrite();
    if (kind === "streams" && this.store.streams.has(name))
      return new StreamView(this.store, name, { canWrite, range: rangeOf(query) });
    if (kind === "streams") return missing(`There is no stream called ${name}.`);
    if (kind === "events" && name) return new EventView(this.store, name, { canWrite });
    if (kind === "events") return new EventsView(this.store);
    if (kind === "detectors") return new DetectorsView(this.store, { canWrite });
    if (kind) return missing("There is nothing at this address.");
    if (!this.store.streams.size)
      return new StartView(this.store, { canWrite, hasTokens: Boolean(this.session?.tokens) });
    return new FleetView(this.store);
  }

  #canWrite() {
    const scopes = this.session?.scopes ?? [];
    return !this.session?.tokens || scopes.includes("write") || scopes.includes("admin");
  }

  /** @param {View} view */
  #show(view) {
    const isFirst = !this.view;
    this.view?.destroy?.();
    this.view = view;
    fill(place("view"), view.element);
    document.title = `${view.title} · cometad`;
    scrollTo(0, 0);
    if (!isFirst) view.element.querySelector("h1")?.focus({ preventScroll: true });
    view.shown?.();
  }

  /** @param {string} kind */
  #current(kind) {
    const here = kind === "streams" ? "" : kind;
    for (const link of document.querySelectorAll("nav[aria-label=Main] a")) {
      if (link.getAttribute("href") === `#/${here}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** @param {import("./live.js").Message} message */
  #receive(message) {
    const { size } = this.store.streams;
    this.store.apply(message);
    const isStart = this.view instanceof StartView || this.view instanceof FleetView;
    if (this.#isGone()) return this.#route();
    if (isStart && !size !== !this.store.streams.size && !(/** @type {any} */ (this.view).wanted)) this.#route();
  }

  /** Whether the stream on screen was deleted. */
  #isGone() {
    return this.view instanceof StreamView && !this.store.streams.has(this.view.name);
  }

  /** @param {import("./store.js").Change} change */
  #note(change) {
    if (change.kind !== "event" || !change.isNews) return;
    this.opened.push(change.event);
    this.announcing ??= setTimeout(() => this.#announce(), ANNOUNCE_AFTER);
  }

  #announce() {
    const [first, ...others] = this.opened;
    const more = others.length ? ` and ${counted(others.length, "more alert")}` : "";
    setText(place("announcer"), `Alert on ${first.stream}, severity ${severityName(first.severity)}${more}.`);
    this.opened = [];
    this.announcing = undefined;
  }

  /** @param {import("./live.js").Status} status */
  #connection(status) {
    clearInterval(this.countdown);
    const indicator = place("connection");
    indicator.dataset.state = status.state;
    setText(indicator, status.state === "live" ? "Live" : "Offline");
    if (status.state === "lost") return this.#lost(status.retryAt);
    fill(place("lost"));
    if (this.wasLost) this.#refetch();
    this.wasLost = false;
  }

  /** @param {number} retryAt */
  #lost(retryAt) {
    const left = h("span", { "aria-hidden": "true" }); // not read out every second
    const tick = () => setText(left, ` in ${Math.max(Math.ceil((retryAt - Date.now()) / 1000), 0)} s`);
    this.wasLost = true;
    this.countdown = setInterval(tick, 500);
    tick();
    const now = button("Retry now", () => this.live.start(), { class: "plain" });
    fill(place("lost"), h("p", {}, "Connection lost, retrying", left, ". What you see may be out of date."), now);
  }

  async #refetch() {
    try {
      await this.#fetchStreams();
      if (this.#isGone()) this.#route();
      else this.view?.refresh?.();
    } catch {
      this.live.start(); // lost again; this waits and retries
    }
  }
}

/** @param {URLSearchParams} query @returns {[number, number] | null} */
function rangeOf(query) {
  const [from, to] = ["from", "to"].map((name) => parseFloat(query.get(name) ?? ""));
  return from < to ? [from, to] : null;
}

/** @param {string} sentence @returns {View} */
function missing(sentence) {
  return {
    title: "Not found",
    element: h(
      "div",
      {},
      h("h1", { tabindex: -1 }, "Not found"),
      h("p", {}, sentence),
      h("p", {}, h("a", { href: "#/" }, "Go to the fleet")),
    ),
  };
}

new App().start();
