// Small conveniences of all pages. Every page works without this script.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : dark.matches;
}

function announceTheme() {
  document.dispatchEvent(new CustomEvent("coatcheck:theme"));
}

function switchTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("coatcheck-theme", next);
  } catch {
    // The choice then holds for this page only.
  }
  announceTheme();
}

// Relative times, formatted as in rendering.py.
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function ago(moment) {
  const passed = (Date.now() - moment.getTime()) / 1000;
  const away = Math.abs(passed);
  if (away < 1) return "now";
  const [name, size] = UNITS.find(([, each]) => away >= each);
  const text = `${Math.floor(away / size)}\u202f${name}`;
  return passed > 0 ? `${text} ago` : `in ${text}`;
}

function keepTimesCurrent() {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const text = ago(new Date(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}

async function copyText(button) {
  await navigator.clipboard.writeText(button.dataset.copy);
  button.classList.add("is-done");
  setTimeout(() => button.classList.remove("is-done"), 1500);
}

function showWhatNeedsScripts(root) {
  for (const each of root.querySelectorAll("[data-copy][hidden]")) {
    each.hidden = !navigator.clipboard;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (button) copyText(button);
});
// Selecting with the mouse submits the form. The arrow keys do not: they pass over other options.
let isByKey = false;
document.addEventListener("keydown", () => { isByKey = true; }, true);
document.addEventListener("pointerdown", () => { isByKey = false; }, true);
document.addEventListener("change", (event) => {
  if (!isByKey && event.target.matches?.("[data-submits]")) event.target.form.requestSubmit();
});
document.addEventListener("htmx:afterSettle", () => {
  keepTimesCurrent();
  showWhatNeedsScripts(document);
});
dark.addEventListener("change", announceTheme);

const themeButton = document.getElementById("theme");
if (themeButton) {
  themeButton.hidden = false;
  themeButton.addEventListener("click", switchTheme);
}
// On a phone the menu is wider than the screen: scroll to the current page's entry.
const list = document.querySelector(".side nav");
const open = list?.querySelector("[aria-current]");
if (open && open.offsetLeft + open.offsetWidth > list.clientWidth) list.scrollLeft = open.offsetLeft - 24;

showWhatNeedsScripts(document);
keepTimesCurrent();
setInterval(keepTimesCurrent, 1000);

// Live refresh of parts of a page: keeps open details and the focus, says when the server stops
// responding, and pauses while the page is hidden.

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

// Forms: asks for confirmation before destructive actions, and ignores double clicks.

const SENDING_MILLISECONDS = 10000;
let isSending = false;

function beginSending() {
  if (isSending) return false;
  isSending = true;
  // The next page resets it. If none comes, the visitor may try again.
  setTimeout(() => { isSending = false; }, SENDING_MILLISECONDS);
  return true;
}

// Sends a new form, because a refresh may have replaced the original one meanwhile.
function sendConfirmed(action, fields) {
  if (!beginSending()) return;
  const form = document.createElement("form");
  form.method = "post";
  form.action = action;
  form.hidden = true;
  for (const [name, value] of [...fields, ["confirmed", "yes"]]) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}

function askFirst(event) {
  const form = event.target;
  const button = event.submitter;
  const question = button?.dataset.confirm || form.dataset.confirm;
  if (!question) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const action = button?.hasAttribute("formaction") ? button.formAction : form.action;
  const fields = [...new FormData(form)];
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-question").textContent = question;
  document.getElementById("confirm-yes").textContent = button?.dataset.yes || form.dataset.yes || "Confirm";
  const answer = (said) => {
    dialog.close(said);
    if (said === "yes") sendConfirmed(action, fields);
    // A refresh has replaced the button that the dialog returned the focus to.
    else if (button && !button.isConnected) focusOn(nameOf(button));
  };
  // Not at "close", which comes later: keys pressed before it would go nowhere.
  dialog.oncancel = () => answer("no");
  dialog.onsubmit = (answered) => {
    answered.preventDefault();
    answer(answered.submitter.value);
  };
  dialog.showModal();
}

function sendOnce(event) {
  if (event.target.getAttribute("method") === "post" && !beginSending()) event.preventDefault();
}

document.addEventListener("submit", askFirst, true);
document.addEventListener("submit", sendOnce, true);
addEventListener("pageshow", () => { isSending = false; });
