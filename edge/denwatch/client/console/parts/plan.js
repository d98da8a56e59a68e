// The plan of the place: devices, nodes and people by their positions in metres, over a picture if there is one.
export default {
  template: `
  <section class="card plan" id="section-plan" data-section="plan" tabindex="-1" aria-labelledby="plan-title">
    <div class="card-head"><h2 id="plan-title">{{ t('Plan') }}</h2></div>
    <p v-if="!points.length" class="empty">{{ t('No position is known. A reading has one if its sensor knows it and a subscription names it, or asks for the whole reading.') }}</p>
    <svg v-else class="plan-map" :viewBox="view" role="img" :aria-label="t('Plan')">
      <image v-if="picture" :href="picture" :x="box.left" :y="-box.top" :width="box.width" :height="box.height" preserveAspectRatio="none"/>
      <rect v-else class="plan-ground" :x="box.left" :y="-box.top" :width="box.width" :height="box.height"/>
      <g v-for="one in points" :key="one.kind + one.name" :class="['place', one.kind, 'severity-' + (one.severity ?? 'none')]"
        :transform="'translate(' + one.east + ' ' + -one.north + ') scale(' + unit + ')'">
        <circle v-if="one.kind !== 'node'" r="7"/><rect v-else x="-6" y="-6" width="12" height="12"/>
        <text x="10" y="4">{{ one.name }}</text></g>
    </svg>
    <ul v-if="points.length" class="sr"><li v-for="one in points" :key="one.kind + one.name">{{ t('{0}: {1} m east, {2} m north', one.name, one.east, one.north) }}</li></ul>
    <p v-if="points.length" class="hint">{{ t('{0} m wide; circles are devices and people, squares are nodes', Math.round(box.width)) }}</p>
  </section>`,
  props: { places: Array, nodes: Array, area: Array, picture: String, cards: Object },
  computed: {
    points() {
      const found = (this.places ?? []).map((one) => ({ ...one, kind: "device", severity: this.cards[one.name]?.severity }));
      return [...found, ...(this.nodes ?? []).map((one) => ({ ...one, kind: "node" }))];
    },
    box() {
      if (this.area) {
        const [west, south, east, north] = this.area;
        return { left: west, top: north, width: east - west, height: north - south };
      }
      const easts = this.points.map((one) => one.east);
      const norths = this.points.map((one) => one.north);
      const width = Math.max(20, Math.max(...easts) - Math.min(...easts)) * 1.5;
      const height = Math.max(width * 0.5, (Math.max(...norths) - Math.min(...norths)) * 1.3);
      const middle = [(Math.max(...easts) + Math.min(...easts)) / 2, (Math.max(...norths) + Math.min(...norths)) / 2];
      return { left: middle[0] - width / 2, top: middle[1] + height / 2, width, height };
    },
    view() {
      return `${this.box.left} ${-this.box.top} ${this.box.width} ${this.box.height}`;
    },
    unit() {
      return this.box.width / 320;
    },
  },
};
