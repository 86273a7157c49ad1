// Before anything is drawn: the theme that was chosen, if one was; else the system's.
try {
  const chosen = localStorage.getItem("coatcheck-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; the system's theme is as good.
}
