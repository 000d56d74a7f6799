// Dark or light, before anything is painted: what the reader chose here, or what their system says.
"use strict";
(() => {
  const kept = (() => { try { return localStorage.getItem("allswell-theme"); } catch { return null; } })();
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
})();
