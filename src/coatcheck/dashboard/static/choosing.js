// Choosing rows of a list that is made anew while one looks at it.
"use strict";

const form = document.getElementById("choosing");

function boxes() {
  return [...form.querySelectorAll("input.chooses")];
}

function tell() {
  const chosen = boxes().filter((each) => each.checked).length;
  const everything = document.getElementById("choose-everything")?.checked;
  const all = document.getElementById("choose-all");
  if (all) {
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && chosen < boxes().length;
  }
  const told = document.getElementById("chosen");
  if (told) told.textContent = everything ? "All matches selected" : chosen ? `${chosen} selected` : "";
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
    tell();
  });
  // Rows stay where they are while some are chosen.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!event.target.matches?.("[data-polls]")) return;
    if (boxes().some((each) => each.checked)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSettle", tell);
  tell();
}
