// The devices: what they sense, where they are; a click on an attribute begins a subscription.
export default {
  template: `
  <div class="part"><section class="card sources" id="section-sources" data-section="sources" tabindex="-1" aria-labelledby="sources-title">
    <div class="card-head"><h2 id="sources-title">{{ t('Who publishes what') }}</h2>
      <span class="number" v-if="sources?.length">{{ sources.length }}</span></div>
    <p v-if="!sources?.length" class="empty">{{ t('No device is registered at a node that this console receives statuses from.') }}</p>
    <template v-else>
      <label class="search"><span class="icon-box" v-html="icon('search')"></span>
        <input v-model="wanted" data-first type="search" :placeholder="t('a device, an attribute, a node')"
          :aria-label="t('Find a device, an attribute or a node')"></label>
      <ul>
        <li v-for="one in found" :key="one.name" class="source" :class="{ away: !one.is_present, lost: one.lost }">
          <div class="source-head"><h3>{{ one.name }}</h3>
            <span class="presence"><i aria-hidden="true"></i>{{ presence(one) }}</span></div>
          <p class="where">{{ t('at {0}', one.nodes.join(', ')) }}<template v-if="one.place"> · {{ one.place }}</template></p>
          <p v-for="sense in one.sensed" :key="sense.event + sense.attributes.length" class="sensed">
            <span class="event">{{ sense.event }}</span>
            <button v-for="it in sense.attributes" type="button" class="chip" :key="it.name" :title="it.domain"
              :aria-label="t('Subscribe to {0}, {1}', it.label, it.domain)" @click="ask(it.name)">{{ it.label }}</button></p>
        </li>
      </ul>
      <p v-if="!found.length" class="empty">{{ t('Nothing matches “{0}”.', wanted) }}</p>
      <p v-if="more" class="hint">{{ t('and {0} more that the nodes count but do not name', more) }}</p>
    </template>
  </section></div>`,
  props: { sources: Array, more: Number },
  data() {
    return { wanted: "" };
  },
  computed: {
    found() {
      const wanted = this.wanted.trim().toLowerCase().replaceAll("_", " ");
      if (!wanted) return this.sources;
      return this.sources.filter((one) => {
        const words = [one.name, ...one.nodes, one.place];
        for (const sense of one.sensed) words.push(sense.event, ...sense.attributes.map((a) => a.label));
        return words.join(" ").toLowerCase().replaceAll("_", " ").includes(wanted);
      });
    },
  },
  methods: {
    presence(one) {
      if (!one.lost) return this.t(one.is_present ? "here" : "away");
      const time = new Date(one.lost).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      return this.t("unknown since {0}", time);
    },
    ask(name) {
      dispatchEvent(new CustomEvent("denwatch-write", { detail: { words: `${name} is` } }));
    },
  },
};
