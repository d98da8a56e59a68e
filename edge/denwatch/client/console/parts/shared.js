// Shared by all elements of the page: the theme (set before anything is painted), durations,
// icons, sections. Defines `denwatch` and nothing else.
(() => {
  const THEMES = ["dark", "light", "sun"];

  function readSetting(name, fallback) {
    try {
      return localStorage.getItem(`denwatch.${name}`) ?? fallback;
    } catch {
      return fallback; // a browser without storage
    }
  }

  function writeSetting(name, value) {
    try {
      localStorage.setItem(`denwatch.${name}`, value);
    } catch {
      // The setting lasts until the page is closed.
    }
  }

  function findTheme() {
    const wanted = readSetting("theme", "");
    if (THEMES.includes(wanted)) return wanted;
    if (matchMedia("(prefers-contrast: more)").matches) return "sun";
    return matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    writeSetting("theme", theme);
  }

  // Two largest units, as on the command line: "2 h 5 min", "41 s".
  function span(ms) {
    let left = Math.max(0, Math.floor(ms / 1000));
    const parts = [];
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      const count = Math.floor(left / size);
      left %= size;
      if (count && parts.length < 2) parts.push(`${count} ${unit}`);
      else if (parts.length) break;
    }
    return parts.join(" ") || "0 s";
  }

  function clock(ms) {
    return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  // The language: what was chosen here, or what the browser prefers. English words are the keys.
  const TABLES = globalThis.denwatchStrings ?? { en: {} };
  const wished = readSetting("language", navigator.language.slice(0, 2));
  const language = wished in TABLES ? wished : "en";

  function t(words, ...parts) {
    const own = TABLES[language]?.[words] ?? words;
    return own.replace(/\{(\d)\}/g, (_, at) => parts[at] ?? "");
  }

  function setLanguage(code) {
    writeSetting("language", code);
    document.cookie = `denwatch_language=${code}; path=/; max-age=31536000; samesite=lax`; // for the login page
    location.reload();
  }

  const SEVERITIES = ["calm", "watch", "serious", "critical"];

  // The points of a small line, for a picture of this size.
  function trace(points, width, height, low, high) {
    const values = points.map((point) => point[1]);
    const bottom = low ?? Math.min(...values);
    const range = (high ?? Math.max(...values)) - bottom || 1;
    const start = points[0][0];
    const length = points.at(-1)[0] - start || 1;
    return points
      .map(([at, value]) => `${(((at - start) / length) * width).toFixed(1)},${(height - ((value - bottom) / range) * height).toFixed(1)}`)
      .join(" ");
  }

  const ICONS = {
    "severity-3": "M7.8 2h8.4L22 7.8v8.4L16.2 22H7.8L2 16.2V7.8L7.8 2Zm3.1 4v8h2.2V6h-2.2Zm0 10v2.2h2.2V16h-2.2Z",
    "severity-2": "M12 3 1.5 21h21L12 3Zm1 14.5h-2v-2h2v2Zm0-3.7h-2v-4h2v4Z",
    "severity-1": "M12 2 2 12l10 10 10-10L12 2Zm0 3.1 6.9 6.9-6.9 6.9L5.1 12 12 5.1Z",
    "severity-0": "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16Zm0 2.4a5.6 5.6 0 1 1 0 11.2 5.6 5.6 0 0 1 0-11.2Z",
    rising: "M12 4 4 14h5v6h6v-6h5L12 4Z",
    falling: "M12 20l8-10h-5V4H9v6H4l8 10Z",
    steady: "M4 10h10V5l7 7-7 7v-5H4v-4Z",
    plan: "M3 5l6-2 6 2 6-2v16l-6 2-6-2-6 2V5Zm6 .3v11.5l6 2V7.3l-6-2Z",
    report: "M3 10v4h4l5 5V5L7 10H3Zm13.5 2A4.5 4.5 0 0 0 14 8v8a4.5 4.5 0 0 0 2.5-4Z",
    chart: "M4 3h2v16h15v2H4V3Zm4 12 4-5 3 3 5-7 1.6 1.2-6.4 9-3.1-3.1-2.5 3.1L8 15Z",
    share: "M14 3l7 7-7 7v-4c-5 0-8.500 1.600-11 5 1-5 4-10 11-11V3Z",
    certain: "M12 2 4 5v6c0 5 3.4 9.4 8 11 4.6-1.6 8-6 8-11V5l-8-3Zm-1.2 14.2-3.9-3.9 1.5-1.5 2.4 2.4 4.9-4.9 1.5 1.5-6.4 6.4Z",
    possible: "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20Zm0 2.2v15.6a7.8 7.8 0 0 1 0-15.6Z",
    clock: "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20Zm1 10.6 4 2.4-1 1.6-5-3V6h2v6.6Z",
    bell: "M12 22a2.3 2.3 0 0 0 2.3-2h-4.6A2.3 2.3 0 0 0 12 22Zm7-5v-1l-1.6-2V10a5.4 5.4 0 0 0-4-5.2V4a1.4 1.4 0 0 0-2.8 0v.8a5.4 5.4 0 0 0-4 5.2v4L5 16v1h14Z",
    mute: "M3.3 2 2 3.3l4.9 4.9A5.6 5.6 0 0 0 6.6 10v4L5 16v1h10.7l5 5 1.3-1.3L3.3 2ZM12 22a2.3 2.3 0 0 0 2.3-2h-4.6A2.3 2.3 0 0 0 12 22Zm5.4-8.2V10a5.4 5.4 0 0 0-4-5.2V4a1.4 1.4 0 0 0-2.8 0v.8c-.6.1-1.2.4-1.7.8l8.5 8.2Z",
    edit: "M4 17.2V20h2.8L16.9 9.9l-2.8-2.8L4 17.2ZM19.7 7a1 1 0 0 0 0-1.4l-1.3-1.3a1 1 0 0 0-1.4 0l-1.5 1.5 2.8 2.8L19.7 7Z",
    end: "M6.4 5 5 6.4l5.6 5.6L5 17.6 6.4 19l5.6-5.6 5.6 5.6 1.4-1.4-5.6-5.6L19 6.4 17.6 5 12 10.6 6.4 5Z",
    warn: "M12 3 1.5 21h21L12 3Zm1 14.5h-2v-2h2v2Zm0-3.7h-2v-4h2v4Z",
    ok: "M9.2 16.2 5 12l-1.6 1.6 5.8 5.8L21 7.6 19.4 6 9.2 16.2Z",
    feed: "M4 5h16v3H4V5Zm0 5.5h16v3H4v-3ZM4 16h10v3H4v-3Z",
    ask: "M4 4h16v12H8l-4 4V4Zm4 5v2h8V9H8Z",
    subscriptions: "M4 6h2v2H4V6Zm4 0h12v2H8V6ZM4 11h2v2H4v-2Zm4 0h12v2H8v-2Zm-4 5h2v2H4v-2Zm4 0h12v2H8v-2Z",
    nodes: "M12 3a3 3 0 0 0-1 5.8v2.7l-3.5 3.1a3 3 0 1 0 1.4 1.5L12 13.4l3.1 2.7a3 3 0 1 0 1.4-1.5L13 11.5V8.8A3 3 0 0 0 12 3Z",
    sources: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM5.6 4.2A10.9 10.9 0 0 0 5.6 19.8l1.5-1.6a8.8 8.8 0 0 1 0-12.4L5.6 4.2Zm12.8 0-1.5 1.6a8.8 8.8 0 0 1 0 12.4l1.5 1.6a10.9 10.9 0 0 0 0-15.6Z",
    theme: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Zm0 2.4v13.2a6.6 6.6 0 0 1 0-13.2Z",
    sun: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10ZM11 1h2v4h-2V1Zm0 18h2v4h-2v-4ZM1 11h4v2H1v-2Zm18 0h4v2h-4v-2ZM4.9 3.5l2.8 2.8-1.4 1.4-2.8-2.8 1.4-1.4Zm12.8 12.8 2.8 2.8-1.4 1.4-2.8-2.8 1.4-1.4Zm1.4-12.8 1.4 1.4-2.8 2.8-1.4-1.4 2.8-2.8ZM6.3 16.3l1.4 1.4-2.8 2.8-1.4-1.4 2.8-2.8Z",
    moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
    help: "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20Zm1 15.5h-2v-2h2v2Zm1.6-6.4-.8.8c-.6.6-.8 1-.8 2.1h-2v-.5c0-1 .3-1.8 1-2.5l1.1-1.1c.3-.3.4-.6.4-.9a1.5 1.5 0 0 0-3 0H8.5a3.5 3.5 0 0 1 7 0c0 .9-.4 1.5-.9 2.1Z",
    install: "M11 3h2v9l3.5-3.500 1.400 1.400L12 15.800 6.100 9.900l1.400-1.400L11 12V3ZM4 18h16v3H4v-3Z",
    leave: "M10 4v2H6v12h4v2H4V4h6Zm4.6 3.4L19.2 12l-4.6 4.6-1.4-1.4 2.2-2.2H9v-2h6.4l-2.2-2.2 1.4-1.4Z",
    search: "M10 3a7 7 0 1 0 4.3 12.5l5.1 5.1 1.4-1.4-5.1-5.1A7 7 0 0 0 10 3Zm0 2.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6Z",
  };

  function icon(name) {
    return `<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;
  }

  // On a phone one section is shown at a time; on a wide screen all are.
  function show(section, focus) {
    document.documentElement.dataset.view = section;
    dispatchEvent(new CustomEvent("denwatch-view", { detail: section }));
    const found = document.getElementById(`section-${section}`);
    if (focus && found) (found.querySelector("[data-first]") ?? found).focus();
  }

  setTheme(findTheme());
  document.documentElement.dataset.view = "feed";
  document.documentElement.lang = language;
  globalThis.denwatch = {
    THEMES, SEVERITIES, readSetting, writeSetting, setTheme, span, clock, icon, show, trace, t, language, setLanguage,
    languages: Object.keys(TABLES),
  };
})();
