// The bar on top: the connection, the user, themes, help; the tabs of a phone; the shortcuts.
import { markRaw } from "/vue.js";
import { turnOff, turnOn } from "/alarm.js";

export default {
  template: `
  <div class="bar-root">
    <a class="skip" href="#section-feed" @click.prevent="go('feed')">{{ t('Skip to the feed') }}</a>
    <header class="bar">
      <div class="brand">
        <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8"/>
          <path d="M6 22 C11 22 11 9 16 9 S21 22 26 22"/></svg>
        <h1>denwatch<span> console</span></h1>
      </div>
      <p class="link" :class="isUp ? 'up' : isKnown ? 'down' : ''" id="link">
        <span class="icon-box" v-html="icon(isUp ? 'ok' : isKnown ? 'warn' : 'clock')"></span>
        <span class="link-words">{{ sentence }}</span>
      </p>
      <div class="tools">
        <span class="user" :title="t('These are the notifications of {0}', user)">{{ user }}</span>
        <button type="button" class="tool" @click="openReport" :aria-label="t('Report what you see')"
          :title="t('Report what you see')" v-html="icon('report')"></button>
        <button type="button" class="tool alarm" :class="{ off: !alarm.isOn }" @click="turnAlarm" :aria-pressed="alarm.isOn ? 'true' : 'false'"
          :aria-label="t('Alarm: sound, vibration, notifications')" :title="alarmWords"><span
          class="icon-box" v-html="icon(alarm.isOn ? 'bell' : 'mute')"></span><span class="tool-words">{{ alarmWords }}</span></button>
        <button v-if="languages.length > 1" type="button" class="tool" @click="turnLanguage" lang="en"
          :aria-label="'Language: ' + language + '. Next: ' + nextLanguage" :title="'Language: ' + language">{{ language }}</button>
        <button type="button" class="tool" @click="turn" :aria-label="t('Theme: {0}. Change it', t(theme))"
          :title="t('Theme: {0}', t(theme))" v-html="icon({dark: 'moon', light: 'theme', sun: 'sun'}[theme])"></button>
        <button v-if="installation" type="button" class="tool install" @click="install" :aria-label="t('Install on this device')"
          :title="t('Install on this device')" v-html="icon('install')"></button>
        <button type="button" class="tool" @click="help" :aria-label="t('Help and shortcuts')"
          :title="t('Help and shortcuts') + ' (?)'" v-html="icon('help')"></button>
        <form v-if="shared" method="post" action="/logout" @submit="forget">
          <button class="tool" :aria-label="t('Log out')" :title="t('Log out')" v-html="icon('leave')"></button>
        </form>
      </div>
    </header>
    <div class="banner" v-if="isKnown && !isUp" role="alert">
      <span class="icon-box" v-html="icon('warn')"></span>
      <p v-if="isHere"><strong>{{ reason || t('No node in range') }}</strong> {{ t('for {0}. Reconnecting automatically. New subscriptions are stored here and sent later; notifications stay below.', away) }}</p>
      <p v-else><strong>{{ t('The console does not answer') }}</strong> {{ t('since {0}. Reconnecting automatically; what you see may be out of date.', time(linkState.at)) }}</p>
    </div>
    <p v-if="linkState.refused" class="banner refused" role="alert">{{ linkState.refused }}</p>
    <section v-if="late.length" class="banner late" aria-labelledby="late-title">
      <span class="icon-box" v-html="icon('clock')"></span>
      <div><h2 id="late-title">{{ t('Not sent yet: {0}', late.length) }}</h2>
        <ul><li v-for="one in late" :key="one.id"><span>{{ one.words }} <span class="hint">{{ time(one.at) }}</span>
          <b v-if="one.problem">{{ one.problem }}</b></span>
          <button v-if="one.problem" type="button" class="small" @click="sendAgain(one.id)" :aria-label="t('Send again: {0}', one.words)">{{ t('Send again') }}</button>
          <button type="button" class="small quiet" @click="discard(one.id)" :aria-label="t('Do not send: {0}', one.words)">{{ t('Do not send') }}</button></li></ul></div>
    </section>
    <p class="sr" role="status">{{ announcement }}</p>
    <nav class="tabs" :aria-label="t('Sections')">
      <button v-for="tab in tabs" type="button" :key="tab.name" @click="go(tab.name)"
        :aria-current="view === tab.name ? 'page' : undefined">
        <span class="icon-box" v-html="icon(tab.name)"></span>{{ t(tab.label) }}
      </button>
    </nav>
    <dialog ref="report" class="help" aria-labelledby="report-title">
      <h2 id="report-title">{{ t('Report what you see') }}</h2>
      <p class="hint">{{ t('An event, a colon, and what you see, such as: patient: temperature is high, pulse about 120') }}</p>
      <form @submit.prevent="report"><textarea id="report-text" class="report-text" rows="3" v-model="seen" maxlength="2000"
        :aria-label="t('What do you see?')"></textarea>
        <p class="reported" :class="{ wrong: reported?.wrong }" role="status">{{ reported?.words }}</p>
        <button class="primary">{{ t('Report') }}</button>
        <button type="button" class="small quiet" @click="$refs.report.close()">{{ t('Close') }}</button></form>
    </dialog>
    <dialog ref="help" class="help" aria-labelledby="help-title">
      <h2 id="help-title">{{ t('Help and shortcuts') }}</h2>
      <p>{{ t('Subscribe in words to what you need to know. What matches appears in the feed while it is valid: one card for each patient, place or device, the worst first. Colour, shape and word of a card say how severe its values are. What is certain is solid; what is striped is only possible, because the sensor is in doubt. Open "Why" to see how well each predicate matches.') }}</p>
      <dl>
        <template v-for="one in shortcuts" :key="one.keys">
          <dt><kbd>{{ one.keys }}</kbd></dt><dd>{{ t(one.what) }}</dd>
        </template>
      </dl>
      <label class="check"><input type="checkbox" v-model="hasKeys"> {{ t('Shortcuts of one key') }}</label>
      <form method="dialog"><button class="primary" data-first>{{ t('Close') }}</button></form>
    </dialog>
  </div>`,
  props: {
    user: String, shared: Boolean, online: Boolean, link: String, reason: String, since: Number, linkState: Object, clock: Object, alarm: Object,
    reported: Object, waiting: Array,
  },
  data() {
    return {
      theme: document.documentElement.dataset.theme,
      view: document.documentElement.dataset.view,
      seen: "",
      installation: null, // the browser's offer to put the page on the home screen
      languages: denwatch.languages,
      language: denwatch.language,
      announcement: "",
      hasKeys: denwatch.readSetting("keys", "on") === "on",
      tabs: [
        { name: "feed", label: "Feed" },
        { name: "ask", label: "Subscribe" },
        { name: "subscriptions", label: "Yours" },
        { name: "nodes", label: "Nodes" },
        { name: "plan", label: "Plan" },
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
    isKnown() {
      return !!this.user; // from the console, or from what was kept of an earlier visit
    },
    isHere() {
      return this.linkState.isHere || !this.isKnown;
    },
    nextLanguage() {
      return this.languages[(this.languages.indexOf(this.language) + 1) % this.languages.length];
    },
    isUp() {
      return this.online && this.isHere;
    },
    sentence() {
      return this.isHere ? this.link || this.t("Starting") : this.t("Console not reachable; trying again");
    },
    late() {
      return this.waiting.filter((one) => one.isLate);
    },
    alarmWords() {
      if (this.alarm.isWaiting) return this.t("Alarm waits for a touch");
      return this.t(this.alarm.isOn ? "Alarm is on" : "Alarm is off");
    },
    away() {
      return denwatch.span(this.clock.now - this.since);
    },
  },
  watch: {
    isUp(value) {
      this.announcement = value ? this.t("Connected again. {0}", this.link) : this.t("Connection lost; trying again.");
    },
    "late.length"(count) {
      if (count) this.announcement = this.t("Not sent yet: {0}", count);
    },
    reported(value) {
      if (!value.wrong) this.seen = "";
    },
    hasKeys(value) {
      denwatch.writeSetting("keys", value ? "on" : "off");
    },
  },
  mounted() {
    addEventListener("keydown", this.press);
    addEventListener("denwatch-view", this.note);
    addEventListener("beforeinstallprompt", this.offer);
    addEventListener("appinstalled", this.settle);
  },
  unmounted() {
    removeEventListener("keydown", this.press);
    removeEventListener("denwatch-view", this.note);
    removeEventListener("beforeinstallprompt", this.offer);
    removeEventListener("appinstalled", this.settle);
  },
  methods: {
    forget(event) {
      const isMeant = !this.waiting.length || confirm(this.t("{0} things are not sent yet, and are lost by this. Log out?", this.waiting.length));
      if (isMeant) denwatch.leave();
      else event.preventDefault();
    },
    discard(id) {
      denwatch.discard(id);
    },
    sendAgain(id) {
      denwatch.sendAgain(id);
    },
    offer(event) {
      event.preventDefault(); // the browser's own bar would cover the feed
      this.installation = markRaw(event);
    },
    settle() {
      this.installation = null;
    },
    async install() {
      await this.installation.prompt();
      this.settle(); // an offer is good for one answer
    },
    openReport() {
      this.$refs.report.showModal();
    },
    report() {
      if (this.seen.trim()) this.send("report", { text: this.seen });
    },
    turnLanguage() {
      denwatch.setLanguage(this.nextLanguage);
    },
    async turnAlarm() {
      await (this.alarm.isOn ? turnOff() : turnOn());
      this.announcement = this.alarmWords;
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
      this.announcement = this.t("Theme: {0}", this.t(this.theme));
    },
    help() {
      this.$refs.help.showModal();
    },
    press(event) {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.hasKeys) return;
      if (document.querySelector("dialog[open]")) return;
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
