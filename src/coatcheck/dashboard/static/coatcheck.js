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

// Relative times, formatted as in shown.py.
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
