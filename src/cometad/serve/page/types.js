// Types of what the service answers. This file has no code and is not loaded; the other files import from it in JSDoc.

/** @typedef {"waiting" | "normal" | "event" | "silent" | "disconnected" | "paused"} State */
/** @typedef {"fault" | "normal" | null} Verdict */
/** @typedef {{times: (number | null)[], scores: (number | null)[], thresholds: (number | null)[]}} Recent */
/** @typedef {"alert" | "notice"} Level */
/** @typedef {{rate?: number | null, alerts?: number | null, per?: number | null, alerts_per_day?: number | null} | null} Budget */

/**
 * @typedef {object} Stream
 * @property {string} name
 * @property {string} detector
 * @property {State} state
 * @property {string | null} reason
 * @property {number} readings
 * @property {number} late
 * @property {number} repeated
 * @property {number | null} last_time
 * @property {number | null} last_received
 * @property {number | null} score
 * @property {number | null} threshold
 * @property {boolean} flagged
 * @property {[string, number][]} top
 * @property {EventSummary | null} open_event
 * @property {number} events
 * @property {Budget} budget
 * @property {string | null} budget_reduced
 * @property {number | null} budget_used
 * @property {number | null} drift
 * @property {number} lag
 * @property {Recent} [recent]
 * @property {string[]} [variables]
 * @property {Record<string, unknown>} [settings]
 */

/**
 * @typedef {object} EventSummary
 * @property {string} id
 * @property {string} stream
 * @property {number} number
 * @property {"open" | "closed"} state
 * @property {Level} level
 * @property {boolean} new_level
 * @property {number | null} start_time
 * @property {number | null} stop_time
 * @property {number | null} peak_time
 * @property {number} start
 * @property {number} stop
 * @property {number} peak
 * @property {number | null} opened_at
 * @property {number | null} closed_at
 * @property {number} peak_score
 * @property {number} threshold
 * @property {number} severity
 * @property {number} rarity
 * @property {string} meaning
 * @property {number} steps
 * @property {[string, number][]} variables
 * @property {Verdict} verdict
 * @property {number | null} verdict_at
 */

/** @typedef {{sentence: string, variables: Variable[], times: (number | null)[]}} Explanation */
/** @typedef {{id: string, stream: string, similarity: number, start_time: number | null, level: Level, severity: number, verdict: Verdict}} Similar */
/** @typedef {EventSummary & {explanation: Explanation | null, similar: Similar[], taught: boolean | null, note: string | null}} EventDetail */

/**
 * @typedef {object} Variable
 * @property {string} name
 * @property {number} share
 * @property {string | null} view
 * @property {string | null} why
 * @property {string} sentence
 * @property {(number | null)[]} observed
 * @property {(number | null)[]} expected
 * @property {number | null} band
 */

/**
 * @typedef {object} Scores
 * @property {number} total
 * @property {number[]} steps
 * @property {(number | null)[]} times
 * @property {(number | null)[]} scores
 * @property {(number | null)[]} thresholds
 * @property {number[]} flags
 */

/**
 * @typedef {object} Detector
 * @property {string} name
 * @property {"fitting" | "ready" | "failed"} state
 * @property {string | null} kind
 * @property {string[]} variables
 * @property {number} progress
 * @property {string | null} error
 * @property {number | null} bytes
 * @property {number | null} created
 * @property {number} streams
 */

/** @typedef {{version: string, tokens: boolean, scopes: string[], streams: number, detectors: number}} Session */
/** @typedef {[number | null, number | null, number | null, number]} Point time, score, threshold, flagged */

/**
 * @typedef {object} LiveScore
 * @property {State} state
 * @property {number | null} score
 * @property {number | null} threshold
 * @property {boolean} flagged
 * @property {number | null} time
 * @property {[string, number][]} top
 * @property {number | null} budget_used
 * @property {number | null} drift
 * @property {Point[]} points
 */

/**
 * A view: what a route shows.
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {string} title
 * @property {() => void} [shown] called once the element is in the document
 * @property {() => void} [refresh] called after the connection was lost
 * @property {() => void} [destroy]
 */

export {};
