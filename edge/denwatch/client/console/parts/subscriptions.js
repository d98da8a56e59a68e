// The subscriptions: state, mute, top k, change, end.
export default {
  template: `
  <div class="part"><section class="card subscriptions" id="section-subscriptions" data-section="subscriptions" tabindex="-1" aria-labelledby="subscriptions-title">
    <div class="card-head"><h2 id="subscriptions-title">{{ t('Your subscriptions') }}</h2>
      <span class="number" v-if="subscriptions?.length">{{ subscriptions.length }}</span></div>
    <p v-if="!subscriptions?.length" class="empty">{{ t('No subscriptions yet. Your subscriptions are listed here, and stay until you end them.') }}</p>
    <ul v-else>
      <li v-for="one in subscriptions" :key="one.name" class="subscription" :class="{ muted: one.is_muted }" :data-name="one.name">
        <div class="subscription-head">
          <h3>{{ one.label }}</h3>
          <span class="state" :class="one.state">
            <span class="icon-box" v-html="icon(states[one.state].icon)"></span>{{ t(states[one.state].words) }}</span>
        </div>
        <p class="words" v-if="one.words !== one.label">{{ one.words }}</p>
        <p class="refusal" v-if="one.error">{{ one.error }}</p>
        <div class="controls">
          <button type="button" class="small" :aria-pressed="one.is_muted ? 'true' : 'false'"
            @click="send('mute', { name: one.name, muted: !one.is_muted }, one.label)"
            :aria-label="t(one.is_muted ? 'Show again: {0}' : 'Mute: {0}', one.label)">
            <span class="icon-box" v-html="icon(one.is_muted ? 'mute' : 'bell')"></span>{{ t(one.is_muted ? 'Muted' : 'Mute') }}</button>
          <select :value="one.top ?? ''" :aria-label="t('How many of: {0}', one.label)"
              @change="send('top', { name: one.name, top: $event.target.value ? +$event.target.value : null }, one.label)">
              <option value="">{{ t('show all') }}</option>
              <option v-for="count in counts(one.top)" :key="count" :value="count">{{ t('top {0}', count) }}</option>
            </select>
          <button type="button" class="small quiet" @click="change(one)" :aria-label="t('Change: {0}', one.label)">{{ t('Change') }}</button>
          <button type="button" class="small quiet" @click="share(one)" :aria-label="t('Share: {0}', one.label)">{{ t('Share') }}</button>
          <button v-if="ending !== one.name" type="button" class="small quiet" @click="confirmEnd(one.name)"
            :aria-label="t('Unsubscribe: {0}', one.label)" :data-end="one.name">{{ t('Unsubscribe') }}</button>
          <span v-else class="confirm" role="group" :aria-label="t('End {0}?', one.label)">
            <button type="button" class="small danger" :data-confirm="one.name" @click="end(one)">{{ t('End it') }}</button>
            <button type="button" class="small quiet" @click="keep(one.name)">{{ t('Keep') }}</button>
          </span>
        </div>
        <p class="matches">{{ one.count === 0 ? t('no valid notifications') : one.count === 1 ? t('1 valid notification')
          : t('{0} valid notifications', one.count) }}<template v-if="one.is_muted">, {{ t('hidden') }}</template></p>
      </li>
    </ul>
    <template v-if="others?.length"><h3 class="elsewhere">{{ t('Made elsewhere') }}</h3>
      <ul><li v-for="one in others" :key="one.name" class="subscription other" :data-name="one.name">
        <div class="subscription-head"><h3>{{ one.name }}</h3></div><p class="words">{{ one.words }}</p>
        <div class="controls">
          <button type="button" class="small" :aria-pressed="one.is_muted ? 'true' : 'false'"
            @click="send('other', { name: one.name, muted: !one.is_muted })"
            :aria-label="t(one.is_muted ? 'Show again: {0}' : 'Mute: {0}', one.name)">{{ t(one.is_muted ? 'Muted' : 'Mute') }}</button>
          <button type="button" class="small quiet" @click="share(one)" :aria-label="t('Share: {0}', one.name)">{{ t('Share') }}</button>
          <button type="button" class="small quiet" @click="send('other', { name: one.name, end: true })"
            :aria-label="t('Unsubscribe: {0}', one.name)">{{ t('Unsubscribe') }}</button>
        </div></li></ul></template>
    <dialog ref="share" class="help" aria-labelledby="share-title">
      <h2 id="share-title">{{ t('Share') }}</h2>
      <div v-if="code" class="code" role="img" :aria-label="t('QR code of the link')" v-html="code.svg"></div>
      <p class="words">{{ code?.link }}</p>
      <form method="dialog"><button class="primary">{{ t('Close') }}</button></form>
    </dialog>
    <p class="sr" role="status">{{ announcement }}</p>
  </section></div>`,
  props: { subscriptions: Array, others: Array, online: Boolean, code: Object },
  data() {
    return { ending: "", announcement: "" };
  },
  computed: {
    states() {
      return {
        active: { words: "active", icon: "ok" },
        pending: { words: this.t(this.online ? "pending" : "waits for a node"), icon: "clock" },
        refused: { words: "refused", icon: "warn" },
      };
    },
  },
  methods: {
    counts(top) {
      return [...new Set([1, 3, 5, 10, 20, ...(top ? [top] : [])])].sort((a, b) => a - b);
    },
    share(one) {
      const link = `${location.origin}/#ask=${encodeURIComponent(one.words)}`;
      if (this.send("share", { link })) this.$refs.share.showModal();
    },
    change(one) {
      dispatchEvent(new CustomEvent("denwatch-write", { detail: { words: one.text, changes: one } }));
    },
    focus(selector) {
      this.$nextTick(() => this.$el.querySelector(selector)?.focus());
    },
    confirmEnd(name) {
      this.ending = name;
      this.focus(`[data-confirm="${CSS.escape(name)}"]`);
    },
    keep(name) {
      this.ending = "";
      this.focus(`[data-end="${CSS.escape(name)}"]`);
    },
    end(one) {
      this.ending = "";
      const isSent = this.send("end", { name: one.name }, one.label);
      this.announcement = this.t(isSent ? "The subscription has ended." : "Stored in this browser. It is sent when the console answers.");
      this.$el.querySelector("section").focus();
    },
  },
};
