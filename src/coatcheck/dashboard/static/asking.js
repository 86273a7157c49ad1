// Forms: what cannot be undone is asked about first, and a double click does nothing twice.
"use strict";

const SENDING_MILLISECONDS = 10000;
let isSending = false;

function beginSending() {
  if (isSending) return false;
  isSending = true;
  // The next page ends it; should none come, one may try again.
  setTimeout(() => { isSending = false; }, SENDING_MILLISECONDS);
  return true;
}

// By a form of its own: the one that was asked about may have been made anew before the answer came.
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
    // The dialog gave the keyboard back to a button that has been made anew.
    else if (button && !button.isConnected) focusOn(nameOf(button));
  };
  // Not at its "close": keys that are pressed meanwhile come before that, and would be nobody's.
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
