// Live refresh of parts of a page: keeps open details and the focus, says when the server stops
// responding, and pauses while the page is hidden.
"use strict";

const LOG_LINES_MAX = 2000;
const SILENCE_MILLISECONDS = 5000;
const NO_ANSWER = "The server is not responding. This page may be out of date.";

// Open details and the focus

let openBefore = [];
let focusBefore = null;

// Identifies an element before and after it is replaced.
function nameOf(element) {
  const leadsTo = element.getAttribute("href") ?? element.form?.getAttribute("action") ?? "";
  return element.id || `${leadsTo} ${element.textContent.trim()}`;
}

function focusOn(name) {
  const main = document.getElementById("main");
  const all = [...main.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  (all.find((each) => nameOf(each) === name) ?? main).focus({ preventScroll: true });
}

function rememberParts() {
  const focused = document.activeElement;
  const isInPage = focused?.closest("#main > *");
  openBefore = [...document.querySelectorAll("main details[id][open]")].map((each) => each.id);
  focusBefore = isInPage ? { element: focused, name: nameOf(focused) } : null;
}

function restoreParts() {
  for (const id of openBefore) document.getElementById(id)?.setAttribute("open", "");
  if (focusBefore && !focusBefore.element.isConnected) focusOn(focusBefore.name);
  openBefore = [];
  focusBefore = null;
}

// Nothing happens between the events of a pair: the first precedes a swap, the second follows it.
document.addEventListener("htmx:beforeSwap", rememberParts);
document.addEventListener("htmx:afterSwap", restoreParts);
document.addEventListener("htmx:sseBeforeMessage", rememberParts);
document.addEventListener("htmx:sseMessage", restoreParts);

// Polling

function isBeingCopiedFrom(part) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches?.('[hx-trigger*="every"]')) return;
  if (document.hidden || isBeingCopiedFrom(event.target)) event.preventDefault();
});

// Streams: a browser opens few connections per server, so hidden pages release theirs.

const streams = new Map();
const resting = new Set();

function listenAgain(element) {
  const parts = element.querySelectorAll("[sse-swap], [hx-trigger*='sse:']");
  for (const each of [element, ...parts]) htmx.trigger(each, "htmx:afterProcessNode");
}

function rest(element) {
  streams.get(element).close();
  resting.add(element);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    for (const element of streams.keys()) rest(element);
  } else {
    for (const element of resting) listenAgain(element);
    resting.clear();
  }
});
document.addEventListener("htmx:sseOpen", (event) => {
  streams.set(event.target, event.detail.source);
  if (document.hidden) rest(event.target);
});
document.addEventListener("htmx:sseClose", (event) => streams.delete(event.target));

// A stream that reconnects may repeat log lines.
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const { type, lastEventId } = event.detail;
  if (type !== "line") return;
  if (event.target.querySelector(`[data-seq="${CSS.escape(lastEventId)}"]`)) event.preventDefault();
  while (event.target.childElementCount >= LOG_LINES_MAX) event.target.firstElementChild.remove();
});

// This event says that the session has ended or switched to another organisation.
document.addEventListener("htmx:sseMessage", (event) => {
  if (event.detail.type === "gone") location.reload();
});

// Shows each problem once, until the server responds again

let silence = null;
let shownProblem = "";

function warnThatPageIsStale() {
  const said = document.createElement("p");
  said.className = "notice is-warning";
  said.dataset.passes = "";
  said.textContent = NO_ANSWER;
  document.getElementById("notices").replaceChildren(said);
  shownProblem = "";
}

function clearWarning() {
  clearTimeout(silence);
  silence = null;
  shownProblem = "";
  for (const each of document.querySelectorAll("#notices [data-passes]")) each.remove();
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "notices") return;
  if (event.detail.serverResponse === shownProblem) event.detail.shouldSwap = false;
  shownProblem = event.detail.serverResponse;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) clearWarning();
});
document.addEventListener("htmx:sendError", warnThatPageIsStale);
document.addEventListener("htmx:sseOpen", clearWarning);
document.addEventListener("htmx:sseClose", clearWarning);
document.addEventListener("htmx:sseError", () => {
  silence ??= setTimeout(warnThatPageIsStale, SILENCE_MILLISECONDS);
});
