// Parts of pages are made anew while one looks at them. Whatever one was doing there goes on, a page
// that is told nothing any more says so, and one that nobody sees asks for nothing.
"use strict";

const LOG_LINES_MAX = 2000;
const SILENCE_MILLISECONDS = 5000;
const NO_ANSWER = "The server is not responding. This page may be out of date.";

// What was open, and where the keyboard was

let openBefore = [];
let focusBefore = null;

// What an element is called, also after it was made anew.
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

// Each pair comes without anything in between: the first before parts are replaced, the second after.
document.addEventListener("htmx:beforeSwap", rememberParts);
document.addEventListener("htmx:afterSwap", restoreParts);
document.addEventListener("htmx:sseBeforeMessage", rememberParts);
document.addEventListener("htmx:sseMessage", restoreParts);

// What asks again and again

function isBeingCopiedFrom(part) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches?.('[hx-trigger*="every"]')) return;
  if (document.hidden || isBeingCopiedFrom(event.target)) event.preventDefault();
});

// Streams: a browser has few connections to one server, and pages that nobody sees would hold them.

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

// A stream that begins anew tells lines of a log again.
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const { type, lastEventId } = event.detail;
  if (type !== "line") return;
  if (event.target.querySelector(`[data-seq="${CSS.escape(lastEventId)}"]`)) event.preventDefault();
  while (event.target.childElementCount >= LOG_LINES_MAX) event.target.firstElementChild.remove();
});

// A stream that ends with this event belongs to a session that has ended, or looks elsewhere now.
document.addEventListener("htmx:sseMessage", (event) => {
  if (event.detail.type === "gone") location.reload();
});

// What went wrong is said once, until it is well again

let silence = null;
let problemSaid = "";

function sayThatItIsOld() {
  const said = document.createElement("p");
  said.className = "notice is-warning";
  said.dataset.passes = "";
  said.textContent = NO_ANSWER;
  document.getElementById("notices").replaceChildren(said);
  problemSaid = "";
}

function takeBack() {
  clearTimeout(silence);
  silence = null;
  problemSaid = "";
  for (const each of document.querySelectorAll("#notices [data-passes]")) each.remove();
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "notices") return;
  if (event.detail.serverResponse === problemSaid) event.detail.shouldSwap = false;
  problemSaid = event.detail.serverResponse;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) takeBack();
});
document.addEventListener("htmx:sendError", sayThatItIsOld);
document.addEventListener("htmx:sseOpen", takeBack);
document.addEventListener("htmx:sseClose", takeBack);
document.addEventListener("htmx:sseError", () => {
  silence ??= setTimeout(sayThatItIsOld, SILENCE_MILLISECONDS);
});
