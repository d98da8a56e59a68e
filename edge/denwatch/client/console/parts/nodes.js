// The nodes: a small map, a sentence on what is known of the network, and a table.
export default {
  template: `
  <div class="part"><section class="card nodes" id="section-nodes" data-section="nodes" tabindex="-1" aria-labelledby="nodes-title">
    <div class="card-head"><h2 id="nodes-title">Nodes</h2></div>
    <p v-if="!network?.nodes?.length" class="empty">No node has reported yet. The map appears with the first
      status of a node.</p>
    <template v-else>
      <p class="sentence" :class="network.state" role="status" id="network-sentence">
        <span class="icon-box" v-html="icon(network.state === 'well' ? 'ok' : 'warn')"></span><span>{{ network.sentence }}</span></p>
      <div class="map-box" v-html="map"></div>
      <p class="hint legend">The number in a node is its number of devices.</p>
      <div class="table-box" tabindex="0" role="region" aria-label="Nodes, as a table">
      <table><caption class="sr">Nodes</caption>
        <thead><tr><th scope="col">node</th><th scope="col">state</th><th scope="col">peers</th>
          <th scope="col">lag</th><th scope="col">devices</th><th scope="col">waiting</th></tr></thead>
        <tbody><tr v-for="one in network.nodes" :key="one.name" :class="{ old: one.state !== 'up' }">
          <th scope="row">{{ one.name }}</th>
          <td>{{ words[one.state] }}<template v-if="one.quiet"> for {{ one.quiet }}</template></td>
          <td>{{ one.peers.join(', ') || 'none' }}</td><td>{{ lag(one.lag) }}</td>
          <td>{{ one.devices }}</td><td>{{ one.queue }}</td></tr></tbody></table></div>
    </template>
  </section></div>`,
  props: { network: Object, map: String },
  data() {
    return { words: { up: "up", silent: "silent", stopped: "stopped", told: "seen by others" } };
  },
  methods: {
    icon: denwatch.icon,
    lag(words) {
      return words === "up to date" ? "none" : words.replace(" behind", "") || "–";
    },
  },
};
