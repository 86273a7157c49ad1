// Selecting rows of a list that is refreshed while it is shown.
"use strict";

const form = document.getElementById("choosing");

function boxes() {
  return [...form.querySelectorAll("input.chooses")];
}

function showSelection() {
  const chosen = boxes().filter((each) => each.checked).length;
  const everything = document.getElementById("choose-everything")?.checked;
  const all = document.getElementById("choose-all");
  if (all) {
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && chosen < boxes().length;
  }
  const label = document.getElementById("chosen");
  if (label) label.textContent = everything ? "All matches selected" : chosen ? `${chosen} selected` : "";
  for (const id of ["bulk-cancel", "bulk-retry"]) {
    const button = document.getElementById(id);
    if (button) button.disabled = !chosen && !everything;
  }
}

if (form) {
  for (const each of form.querySelectorAll("[data-needs-scripts]")) each.hidden = false;
  form.addEventListener("change", (event) => {
    if (event.target.id === "choose-all") {
      for (const each of boxes()) each.checked = event.target.checked;
    }
    showSelection();
  });
  // Do not refresh the rows while some are selected.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!event.target.matches?.("[data-polls]")) return;
    if (boxes().some((each) => each.checked)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSettle", showSelection);
  showSelection();
}
