// The cards: one for each patient, place or device, the worst first. Severity is a colour, a shape and a word;
// certainty is a pattern: what is certain is solid, what is only possible is striped.
const card = {
  props: { card: Object, fresh: Boolean },
  template: `
  <article tabindex="0" :aria-labelledby="'card-' + card.key" :data-device="card.title" :data-certainty="card.certainty"
    :data-severity="card.severity" :class="['severity-' + card.severity, card.certainty, { fresh }]">
    <header class="card-title">
      <span class="level"><span class="icon-box" v-html="icon('severity-' + card.severity)"></span>{{ t(level) }}</span>
      <h3 :id="'card-' + card.key"><span class="device">{{ card.title }}</span> <span class="event">{{ card.event }}</span></h3>
      <span class="badge" :class="card.certainty"><span class="icon-box" v-html="icon(card.certainty)"></span>{{ t(card.certainty) }}<span
        v-if="card.certainty === 'possible'" class="range">{{ card.fit }}</span></span>
    </header>
    <dl class="values"><div v-for="one in card.values" :key="one.name" :class="'value-' + (one.severity ?? 'none')">
      <dt>{{ one.name }}</dt>
      <dd>{{ one.value }}<span v-if="one.trend" class="trend" role="img" :aria-label="t(one.trend)" :title="t(one.trend)" v-html="icon(one.trend)"></span></dd></div>
      <div v-for="one in card.faults" :key="one" class="fault"><dt>{{ one }}</dt><dd>{{ t('broken') }}</dd></div></dl>
    <svg v-if="card.line.length > 1" class="line" viewBox="0 0 240 44" preserveAspectRatio="none" role="img"
      :aria-label="t('Trend of {0}', card.line_of)"><polyline :points="points"/></svg>
    <p class="why">{{ tie(card.summary) }}</p>
    <p class="foot">
      <span class="for" v-if="card.subscriptions.length">{{ t('for') }} <b>{{ card.subscriptions.join(', ') }}</b></span>
      <span v-if="card.place">{{ card.place }}</span>
      <age v-if="card.at" :at="card.at" words="{0} ago" :title="time(card.at)"></age>
      <span class="left"><span class="icon-box" v-html="icon('clock')"></span><age v-if="card.expires" :until="card.expires"
        words="valid for {0}"></age><template v-else>{{ t('does not expire') }}</template></span>
    </p>
    <p v-if="card.claim" class="claim"><span class="icon-box" v-html="icon('ok')"></span><span><b>{{ card.claim.by }}</b>
      {{ t('has it') }}<template v-if="card.claim.since"> · <age :at="card.claim.since" words="for {0}"></age></template><template
      v-if="card.claim.silent"> · {{ t('silent until {0}', time(card.claim.silent)) }}</template></span></p>
    <div class="controls">
      <button v-if="!card.claim" type="button" class="small have" @click="send('have', { have: card.key }, card.title)"
        :aria-label="t('I have it: {0}', card.title)">{{ t('I have it') }}</button>
      <button v-else type="button" class="small" @click="send('have', { release: card.key }, card.title)"
        :aria-label="t('Release: {0}', card.title)">{{ t('Release') }}</button>
      <button type="button" class="small quiet" @click="send('have', { have: card.key, silence: '10 min' }, card.title)"
        :aria-label="t('Silence for 10 minutes: {0}', card.title)">{{ t('Silence 10 min') }}</button>
      <button type="button" class="small quiet" @click="isHanding = !isHanding" :aria-expanded="isHanding ? 'true' : 'false'"
        :aria-label="t('Hand over: {0}', card.title)">{{ t('Hand over') }}</button>
      <form v-if="isHanding" class="hand" @submit.prevent="hand"><input v-model="to" :aria-label="t('To whom?')"
        :placeholder="t('To whom?')" autocapitalize="off" maxlength="64"><button class="small">{{ t('Hand over') }}</button></form>
      <button type="button" class="small quiet" @click="$emit('chart', card)" :aria-label="t('History: {0}', card.title)">
        <span class="icon-box" v-html="icon('chart')"></span>{{ t('History') }}</button>
      <details class="reasons"><summary>{{ t('Why, and {0} readings', card.count) }}</summary>
        <p class="hint">{{ t('{0} % fit', card.percent) }}<template v-if="card.because"> · {{ card.because }}</template></p>
        <ul><li v-for="one in card.reasons" :key="one.words">
          <span class="wanted">{{ one.words }} <span v-if="one.is_limit" class="limit">{{ t('decides') }}</span></span>
          <span class="part-fit">{{ one.fit }}</span>
          <span class="meter" aria-hidden="true"><i :style="{ width: one.percent + '%' }"></i></span>
          <span class="part-value">{{ one.value }}</span></li></ul>
        <ol class="readings"><li v-for="row in card.rows" :key="row.key"><b>{{ row.at ? time(row.at) : '' }}</b>
          {{ row.values.map((v) => v.name + ' ' + v.value).join(', ') }} <span class="hint">{{ row.fit }}</span></li></ol>
      </details>
    </div>
  </article>`,
  emits: ["chart"],
  data() {
    return { isHanding: false, to: "" };
  },
  computed: {
    level() {
      return denwatch.SEVERITIES[this.card.severity];
    },
    points() {
      return denwatch.trace(this.card.line, 240, 40);
    },
  },
  methods: {
    hand() {
      if (this.to.trim()) this.send("have", { have: this.card.key, to: this.to.trim() }, this.card.title);
      this.isHanding = false;
    },
    tie(words) {
      return words.replace(/(\d) (?=[^\s\d]{1,6}\b|%)/g, "$1\u00a0"); // a value stays with its unit
    },
  },
};

export default {
  components: { card },
  template: `
  <section class="card feed" :class="{ old }" id="section-feed" data-section="feed" tabindex="-1" aria-labelledby="feed-title">
    <div class="card-head"><h2 id="feed-title">{{ t('Feed') }}</h2>
      <span class="number" v-if="order?.length">{{ order.length }}</span>
      <span class="hint order" v-if="order?.length">{{ t('worst first') }}</span></div>
    <p v-if="alarm.isWaiting || (order?.length && !alarm.isOn)" class="silent"><span class="icon-box" v-html="icon('mute')"></span>
      <span>{{ t(alarm.isWaiting ? 'The alarm is on again when you touch this page: until then it makes no sound.' : 'This page makes no sound: the alarm is off.') }}</span></p>
    <p v-if="told?.words" class="silent" role="alert">{{ told.words }}</p>
    <p class="sr" role="status" aria-live="polite" id="feed-news">{{ news }}</p>
    <div v-if="!order?.length" class="empty big">
      <svg viewBox="0 0 120 60" aria-hidden="true"><path d="M4 50 H34 L44 20 L56 56 L68 8 L78 50 H116"/></svg>
      <p v-if="subscribed"><b>{{ t('No valid notifications.') }}</b> {{ t('New ones that match your subscriptions appear here automatically.') }}</p>
      <p v-else><b>{{ t('No subscriptions yet.') }}</b> {{ t('Subscribe to what you need to know; what matches appears here, the worst first, with the reason.') }}</p>
      <button v-if="!subscribed" type="button" class="primary only-narrow" @click="ask">{{ t('Subscribe') }}</button>
    </div>
    <ol v-else class="rows"><li v-for="key in shown" :key="key" class="row">
      <card :card="cards[key]" :fresh="!!freshKeys[key]" @chart="chart"></card></li></ol>
    <button v-if="order?.length > most" type="button" class="small" @click="most += 40">{{ t('Show {0} more', order.length - most) }}</button>
    <p v-if="hidden || beyond" class="hidden-count">
      <template v-if="hidden">{{ t('{0} hidden by mute', hidden) }}</template><template
        v-if="hidden && beyond">, </template><template v-if="beyond">{{ t('{0} beyond your top', beyond) }}</template></p>
    <dialog ref="chart" class="help chart" aria-labelledby="chart-title">
      <h2 id="chart-title">{{ t('History: {0}', history.device) }}</h2>
      <p v-if="!lines.length" class="empty">{{ t('No numbers were received from here.') }}</p>
      <figure v-for="one in lines" :key="one.name" class="chart-line">
        <figcaption><b>{{ one.label }}</b> {{ +one.low.toPrecision(4) }}–{{ +one.high.toPrecision(4) }} {{ one.unit }}</figcaption>
        <svg viewBox="0 0 480 110" preserveAspectRatio="none" role="img" :aria-label="one.label">
          <polygon class="doubt" :points="one.band"/><polyline :points="one.points"/></svg>
        <p class="hint ends"><span>{{ time(one.start) }}</span><span>{{ time(one.end) }}</span></p>
      </figure>
      <form method="dialog"><button class="primary">{{ t('Close') }}</button></form>
    </dialog>
  </section>`,
  props: {
    cards: Object, order: Array, hidden: Number, beyond: Number, subscribed: Number, clock: Object, alarm: Object,
    history: Object, old: Boolean, told: Object,
  },
  data() {
    return { news: "", freshKeys: {}, most: 40 };
  },
  computed: {
    shown() {
      return this.order.slice(0, this.most).filter((key) => this.cards[key]);
    },
    lines() {
      return (this.history.lines ?? []).filter((one) => one.points.length).map((one) => {
        const lows = one.points.map((point) => point[2]);
        const highs = one.points.map((point) => point[3]);
        const low = Math.min(...lows);
        const high = Math.max(...highs);
        const at = one.points.map((point) => point[0]);
        const draw = (values) => denwatch.trace(at.map((when, place) => [when, values[place]]), 480, 100, low, high);
        const upper = draw(highs);
        return {
          ...one, low, high, start: at[0], end: at.at(-1), points: draw(one.points.map((point) => point[1])),
          band: `${upper} ${draw(lows).split(" ").reverse().join(" ")}`,
        };
      });
    },
  },
  mounted() {
    addEventListener("denwatch-move", this.move);
    addEventListener("denwatch-news", this.tell);
  },
  unmounted() {
    removeEventListener("denwatch-move", this.move);
    removeEventListener("denwatch-news", this.tell);
  },
  methods: {
    tell(event) {
      const { fresh, isFirst } = event.detail;
      if (isFirst) {
        this.news = this.t("{0} cards.", fresh.length);
        return;
      }
      const worst = fresh[0];
      const more = fresh.length > 1 ? this.t(", and {0} more", fresh.length - 1) : "";
      const level = this.t(denwatch.SEVERITIES[worst.severity]);
      this.news = this.t("New: {0}, {1}, {2}. {3}", worst.title, level, this.t(worst.certainty), worst.summary) + more;
      for (const one of fresh) {
        this.freshKeys[one.key] = true;
        setTimeout(() => delete this.freshKeys[one.key], 6000);
      }
    },
    chart(card) {
      if (this.send("history", { device: card.key })) this.$refs.chart.showModal();
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
