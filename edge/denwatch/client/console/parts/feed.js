// The notifications: best first; certain and possible differ in shape and word; with a countdown.
export default {
  template: `
  <div class="part"><section class="card feed" id="section-feed" data-section="feed" tabindex="-1" aria-labelledby="feed-title">
    <div class="card-head"><h2 id="feed-title">Feed</h2>
      <span class="number" v-if="rows?.length">{{ rows.length }}</span>
      <span class="hint order" v-if="rows?.length">by score, then fit</span></div>
    <p class="sr" role="status" aria-live="polite" id="feed-news">{{ news }}</p>
    <div v-if="!rows?.length" class="empty big">
      <svg viewBox="0 0 120 60" aria-hidden="true"><path d="M4 50 H34 L44 20 L56 56 L68 8 L78 50 H116"/></svg>
      <p v-if="subscribed"><b>No valid notifications.</b> New ones that match your subscriptions appear here
        automatically.</p>
      <p v-else><b>No subscriptions yet.</b> Subscribe to what you need to know; what matches appears here, best
        first, with the reason.</p>
      <button v-if="!subscribed" type="button" class="primary only-narrow" @click="ask">Subscribe</button>
    </div>
    <TransitionGroup v-else tag="ol" name="rank" class="rows">
      <li v-for="row in rows" :key="row.key" class="row" :class="[row.certainty, { fresh: isFresh(row) }]">
        <article tabindex="0" :aria-labelledby="'row-' + row.key" :data-device="row.device" :data-certainty="row.certainty">
          <div class="gauge" :style="{ '--worst': row.worst, '--fit': row.percent }">
            <span class="fit">{{ row.percent }}<small>%</small></span><span class="fit-word">fit</span>
          </div>
          <div class="body">
            <h3 :id="'row-' + row.key">
              <span class="device">{{ row.device || 'unknown device' }}</span>
              <span class="event">{{ row.event }}</span>
              <span class="badge" :class="row.certainty"><span class="icon-box" v-html="icon(row.certainty)"></span>{{ row.certainty }}<span
                v-if="row.certainty === 'possible'" class="range">{{ row.fit }}</span></span>
            </h3>
            <dl class="values"><div v-for="one in row.values" :key="one.name"><dt>{{ one.name }}</dt>
              <dd>{{ one.value }}</dd></div>
              <div v-for="one in row.faults" :key="one" class="fault"><dt>{{ one }}</dt><dd>broken</dd></div></dl>
            <p class="why">{{ tie(row.summary) }}</p>
            <details v-if="row.reasons.length" class="reasons"><summary>Why, predicate by predicate</summary>
              <ul><li v-for="one in row.reasons" :key="one.words">
                <span class="wanted">{{ one.words }} <span v-if="one.is_limit" class="limit">decides</span></span>
                <span class="part-fit">{{ one.fit }}</span>
                <span class="meter" aria-hidden="true"><i :style="{ width: one.percent + '%' }"></i></span>
                <span class="part-value">{{ one.value }}</span></li></ul>
            </details>
            <p class="foot">
              <span class="for" v-if="row.subscriptions.length">for <b>{{ row.subscriptions.join(', ') }}</b></span>
              <span v-if="row.score">score {{ row.score }}</span>
              <span v-if="row.at" :title="clock(row.at)">{{ span(time - row.at) }} ago</span>
              <span class="left" v-if="row.expires" :class="{ soon: row.expires - time < 30000 }">
                <span class="icon-box" v-html="icon('clock')"></span>valid for {{ span(row.expires - time) }}</span>
              <span class="left" v-else>does not expire</span>
            </p>
          </div>
        </article>
      </li>
    </TransitionGroup>
    <p v-if="hidden || beyond" class="hidden-count">
      <template v-if="hidden">{{ hidden }} hidden by mute</template><template
        v-if="hidden && beyond">, </template><template v-if="beyond">{{ beyond }} beyond your top</template></p>
  </section></div>`,
  props: { rows: Array, hidden: Number, beyond: Number, subscribed: Number, now: Number },
  data() {
    return { tick: Date.now(), loaded: Date.now(), news: "", seen: new Map() };
  },
  computed: {
    time() {
      return this.tick - this.loaded + (this.now ?? this.loaded);
    },
  },
  watch: {
    now() {
      this.loaded = this.tick = Date.now();
    },
    rows(rows) {
      const fresh = rows.filter((row) => !this.seen.has(row.key));
      const isFirst = this.seen.size === 0 && rows.length > 1;
      for (const row of fresh) this.seen.set(row.key, isFirst ? 0 : Date.now());
      if (isFirst) this.news = `${rows.length} valid notifications.`;
      else if (fresh.length) {
        const best = fresh[0];
        const more = fresh.length > 1 ? `, and ${fresh.length - 1} more` : "";
        this.news = `New: ${best.certainty}, ${best.percent} percent, ${best.device}. ${best.summary}${more}`;
      }
    },
  },
  mounted() {
    this.timer = setInterval(() => (this.tick = Date.now()), 1000);
    addEventListener("denwatch-move", this.move);
  },
  unmounted() {
    clearInterval(this.timer);
    removeEventListener("denwatch-move", this.move);
  },
  methods: {
    icon: denwatch.icon,
    span: denwatch.span,
    clock: denwatch.clock,
    tie(words) {
      return words.replace(/(\d) (?=[^\s\d]{1,6}\b|%)/g, "$1\u00a0"); // a value stays with its unit
    },
    isFresh(row) {
      return this.tick - (this.seen.get(row.key) ?? 0) < 6000;
    },
    ask() {
      denwatch.show("ask", true);
    },
    move(event) {
      const all = [...this.$el.querySelectorAll("article")];
      if (!all.length) return;
      denwatch.show("feed");
      const at = all.indexOf(document.activeElement?.closest("article"));
      const next = at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + event.detail));
      all[next].focus();
    },
  },
};
