// Sets the chosen theme before the first paint; without a choice, the system's theme applies.
try {
  const chosen = localStorage.getItem("coatcheck-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be disabled; the system's theme then applies.
}
