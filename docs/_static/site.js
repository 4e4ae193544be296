// Tell the course's tables and pictures which theme is shown: they look for JupyterLab's attribute.
const system = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const { theme } = document.body.dataset;
  const dark = theme === "dark" || (theme !== "light" && system.matches);
  document.body.dataset.jpThemeLight = String(!dark);
}

addEventListener("DOMContentLoaded", () => {
  new MutationObserver(showTheme).observe(document.body, { attributeFilter: ["data-theme"] });
  system.addEventListener("change", showTheme);
  showTheme();
});
