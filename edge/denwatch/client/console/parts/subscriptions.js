// The subscriptions: state, mute, top k, change, end.
export default {
  template: `
  <div class="part"><section class="card subscriptions" id="section-subscriptions" data-section="subscriptions" tabindex="-1" aria-labelledby="subscriptions-title">
    <div class="card-head"><h2 id="subscriptions-title">Your subscriptions</h2>
      <span class="number" v-if="subscriptions?.length">{{ subscriptions.length }}</span></div>
    <p v-if="!subscriptions?.length" class="empty">No subscriptions yet. Your subscriptions are listed here, and stay
      until you end them.</p>
    <ul v-else>
      <li v-for="one in subscriptions" :key="one.name" class="subscription" :class="{ muted: one.is_muted }" :data-name="one.name">
        <div class="subscription-head">
          <h3>{{ one.label }}</h3>
          <span class="state" :class="one.state">
            <span class="icon-box" v-html="icon(states[one.state].icon)"></span>{{ states[one.state].words }}</span>
        </div>
        <p class="words" v-if="one.words !== one.label">{{ one.words }}</p>
        <p class="refusal" v-if="one.error">{{ one.error }}</p>
        <div class="controls">
          <button type="button" class="small" :aria-pressed="one.is_muted ? 'true' : 'false'"
            @click="$emit('mute', { name: one.name, muted: !one.is_muted })"
            :aria-label="(one.is_muted ? 'Show again: ' : 'Mute: ') + one.label">
            <span class="icon-box" v-html="icon(one.is_muted ? 'mute' : 'bell')"></span>{{ one.is_muted ? 'Muted' : 'Mute' }}</button>
          <select :value="one.top ?? ''" :aria-label="'How many of: ' + one.label"
              @change="$emit('top', { name: one.name, top: $event.target.value ? +$event.target.value : null })">
              <option value="">show all</option>
              <option v-for="count in counts(one.top)" :key="count" :value="count">top {{ count }}</option>
            </select>
          <button type="button" class="small quiet" @click="change(one)" :aria-label="'Change: ' + one.label">Change</button>
          <button v-if="ending !== one.name" type="button" class="small quiet" @click="confirmEnd(one.name)"
            :aria-label="'Unsubscribe: ' + one.label" :data-end="one.name">Unsubscribe</button>
          <span v-else class="confirm" role="group" :aria-label="'End ' + one.label + '?'">
            <button type="button" class="small danger" :data-confirm="one.name" @click="end(one.name)">End it</button>
            <button type="button" class="small quiet" @click="keep(one.name)">Keep</button>
          </span>
        </div>
        <p class="matches">{{ one.count === 0 ? 'no valid notifications' : one.count === 1 ? '1 valid notification'
          : one.count + ' valid notifications' }}<template v-if="one.is_muted">, hidden</template></p>
      </li>
    </ul>
    <p class="sr" role="status">{{ announcement }}</p>
  </section></div>`,
  props: { subscriptions: Array, online: Boolean },
  data() {
    return { ending: "", announcement: "" };
  },
  computed: {
    states() {
      return {
        active: { words: "active", icon: "ok" },
        pending: { words: this.online ? "pending" : "waits for a node", icon: "clock" },
        refused: { words: "refused", icon: "warn" },
      };
    },
  },
  methods: {
    icon: denwatch.icon,
    counts(top) {
      return [...new Set([1, 3, 5, 10, 20, ...(top ? [top] : [])])].sort((a, b) => a - b);
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
    end(name) {
      this.ending = "";
      this.announcement = "The subscription has ended.";
      this.$emit("end", { name });
      this.$el.querySelector("section").focus();
    },
  },
};
