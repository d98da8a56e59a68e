// The bar on top: the connection, the user, themes, help; the tabs of a phone; the shortcuts.
export default {
  template: `
  <div class="bar-root">
    <a class="skip" href="#section-feed" @click.prevent="go('feed')">Skip to the feed</a>
    <header class="bar">
      <div class="brand">
        <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8"/>
          <path d="M6 22 C11 22 11 9 16 9 S21 22 26 22"/></svg>
        <h1>denwatch<span> console</span></h1>
      </div>
      <p class="link" :class="isUp ? 'up' : 'down'" id="link">
        <span class="icon-box" v-html="icon(isUp ? 'ok' : 'warn')"></span>
        <span class="link-words">{{ sentence }}</span>
      </p>
      <div class="tools">
        <span class="user" :title="'These are the notifications of ' + user">{{ user }}</span>
        <button type="button" class="tool" @click="turn" :aria-label="'Theme: ' + theme + '. Change it'"
          :title="'Theme: ' + theme" v-html="icon({dark: 'moon', light: 'theme', sun: 'sun'}[theme])"></button>
        <button type="button" class="tool" @click="help" aria-label="Help and shortcuts"
          title="Help and shortcuts (?)" v-html="icon('help')"></button>
        <form v-if="shared" method="post" action="/logout">
          <button class="tool" aria-label="Log out" title="Log out" v-html="icon('leave')"></button>
        </form>
      </div>
    </header>
    <div class="banner" v-if="!isUp" role="alert">
      <span class="icon-box" v-html="icon('warn')"></span>
      <p><strong>{{ isHere ? 'No node in range' : 'The console does not answer' }}</strong>
      <template v-if="isHere"> for {{ away }}. Reconnecting automatically. New subscriptions are stored here and
      sent later; notifications stay below.</template>
      <template v-else>. Reconnecting automatically; what you see may be out of date.</template></p>
    </div>
    <p class="sr" role="status">{{ announcement }}</p>
    <nav class="tabs" aria-label="Sections">
      <button v-for="tab in tabs" type="button" :key="tab.name" @click="go(tab.name)"
        :aria-current="view === tab.name ? 'page' : undefined">
        <span class="icon-box" v-html="icon(tab.name)"></span>{{ tab.label }}
      </button>
    </nav>
    <dialog ref="help" class="help" aria-labelledby="help-title">
      <h2 id="help-title">Help and shortcuts</h2>
      <p>Subscribe in words to what you need to know. Readings that match appear in the feed, best first, while
      they are valid. <b>Certain</b> readings match for sure; <b>possible</b> ones may match, because the sensor is
      in doubt. Open <i>Why</i> to see how well each predicate matches.</p>
      <dl>
        <template v-for="one in shortcuts" :key="one.keys">
          <dt><kbd>{{ one.keys }}</kbd></dt><dd>{{ one.what }}</dd>
        </template>
      </dl>
      <label class="check"><input type="checkbox" v-model="hasKeys"> Shortcuts of one key</label>
      <form method="dialog"><button class="primary" data-first>Close</button></form>
    </dialog>
  </div>`,
  props: { user: String, shared: Boolean, online: Boolean, link: String, since: Number, now: Number },
  data() {
    return {
      theme: document.documentElement.dataset.theme,
      view: document.documentElement.dataset.view,
      isHere: true,
      wasHere: false,
      tick: Date.now(),
      loaded: Date.now(),
      announcement: "",
      hasKeys: denwatch.readSetting("keys", "on") === "on",
      tabs: [
        { name: "feed", label: "Feed" },
        { name: "ask", label: "Subscribe" },
        { name: "subscriptions", label: "Yours" },
        { name: "nodes", label: "Nodes" },
        { name: "sources", label: "Sources" },
      ],
      shortcuts: [
        { keys: "/", what: "Go to the subscription field" },
        { keys: "↓ ↑ Enter", what: "Insert a proposed word" },
        { keys: "Ctrl+Space", what: "Propose words" },
        { keys: "Enter", what: "Subscribe (Shift+Enter: a new line)" },
        { keys: "f", what: "Go to the feed" },
        { keys: "j  k", what: "Next and previous notification" },
        { keys: "s", what: "Go to your subscriptions" },
        { keys: "n", what: "Go to the nodes" },
        { keys: "w", what: "Go to the devices" },
        { keys: "t", what: "Next theme: dark, light, sun" },
        { keys: "?", what: "This help" },
      ],
    };
  },
  computed: {
    isUp() {
      return this.online && this.isHere;
    },
    sentence() {
      return this.isHere ? this.link || "Starting" : "Console not reachable; trying again";
    },
    away() {
      // Both clocks as they were when the page was made: this machine's may be wrong.
      return denwatch.span(this.tick - this.loaded + this.now - this.since);
    },
  },
  watch: {
    isUp(value) {
      this.announcement = value ? `Connected again. ${this.link}` : "Connection lost; trying again.";
    },
    now() {
      this.loaded = Date.now();
    },
    hasKeys(value) {
      denwatch.writeSetting("keys", value ? "on" : "off");
    },
  },
  mounted() {
    this.timer = setInterval(this.look, 1000);
    addEventListener("keydown", this.press);
    addEventListener("denwatch-view", this.note);
  },
  unmounted() {
    clearInterval(this.timer);
    removeEventListener("keydown", this.press);
    removeEventListener("denwatch-view", this.note);
  },
  methods: {
    icon: denwatch.icon,
    look() {
      this.tick = Date.now();
      const isConnected = !!window.socket?.connected; // NiceGUI's own, made after this part
      this.wasHere ||= isConnected;
      this.isHere = isConnected || !this.wasHere;
    },
    note(event) {
      this.view = event.detail;
    },
    go(section) {
      denwatch.show(section, true);
    },
    turn() {
      const themes = denwatch.THEMES;
      this.theme = themes[(themes.indexOf(this.theme) + 1) % themes.length];
      denwatch.setTheme(this.theme);
      this.announcement = `Theme: ${this.theme}`;
    },
    help() {
      this.$refs.help.showModal();
    },
    press(event) {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.hasKeys) return;
      if (this.$refs.help.open) return;
      if (event.target.closest("input, textarea, select, [contenteditable]")) return;
      const sections = { "/": "ask", f: "feed", s: "subscriptions", n: "nodes", w: "sources" };
      if (event.key in sections) this.go(sections[event.key]);
      else if (event.key === "t") this.turn();
      else if (event.key === "?") this.help();
      else if (event.key === "j" || event.key === "k") {
        dispatchEvent(new CustomEvent("denwatch-move", { detail: event.key === "j" ? 1 : -1 }));
      } else return;
      event.preventDefault();
    },
  },
};
