// Forms: asks for confirmation before destructive actions, and ignores double clicks.
"use strict";

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
