// The nodes: a small map, a sentence on what is known of the network, and a table.
export default {
  template: `
  <div class="part"><section class="card nodes" id="section-nodes" data-section="nodes" tabindex="-1" aria-labelledby="nodes-title">
    <div class="card-head"><h2 id="nodes-title">{{ t('Nodes') }}</h2></div>
    <p v-if="!network?.nodes?.length" class="empty">{{ t('No node has reported yet. The map appears with the first status of a node.') }}</p>
    <template v-else>
      <p class="sentence" :class="network.state" role="status" id="network-sentence">
        <span class="icon-box" v-html="icon(network.state === 'well' ? 'ok' : 'warn')"></span><span>{{ network.sentence }}</span></p>
      <div class="map-box" v-html="map"></div>
      <p class="hint legend">{{ t('The number in a node is its number of devices.') }}</p>
      <div class="table-box" tabindex="0" role="region" :aria-label="t('Nodes, as a table')">
      <table><caption class="sr">{{ t('Nodes') }}</caption>
        <thead><tr><th v-for="name in columns" :key="name" scope="col">{{ t(name) }}</th></tr></thead>
        <tbody><tr v-for="one in network.nodes" :key="one.name" :class="{ old: one.state !== 'up' }">
          <th scope="row">{{ one.name }}</th>
          <td>{{ t(words[one.state]) }}<template v-if="one.quiet"> {{ t('for {0}', one.quiet) }}</template></td>
          <td>{{ one.peers.join(', ') || t('none') }}</td><td>{{ lag(one.lag) }}</td>
          <td>{{ one.devices }}</td><td>{{ one.queue }}</td></tr></tbody></table></div>
    </template>
  </section></div>`,
  props: { network: Object, map: String },
  data() {
    return { columns: ["node", "state", "peers", "lag", "devices", "waiting"], words: { up: "up", silent: "silent", stopped: "stopped", told: "seen by others" } };
  },
  methods: {
    lag(words) {
      return words === "up to date" ? this.t("none") : words.replace(" behind", "") || "–";
    },
  },
};
