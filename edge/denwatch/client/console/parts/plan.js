// The plan of the place: devices and people by their positions in metres, over a picture if there is one.
export default {
  template: `
  <section class="card plan" id="section-plan" data-section="plan" tabindex="-1" aria-labelledby="plan-title">
    <div class="card-head"><h2 id="plan-title">{{ t('Plan') }}</h2></div>
    <p v-if="!points.length && !area" class="empty">{{ t('No position is known. A reading has one if its sensor knows it and a subscription names it, or asks for the whole reading.') }}</p>
    <svg v-else class="plan-map" :viewBox="view" role="img" :aria-label="t('Plan')">
      <rect class="plan-ground" :x="box.left" :y="-box.top" :width="box.width" :height="box.height"/>
      <image v-if="area" href="/plan" :x="area[0]" :y="-area[3]" :width="area[2] - area[0]" :height="area[3] - area[1]" preserveAspectRatio="none"/>
      <g v-for="one in points" :key="one.name" :class="['place', 'device', 'severity-' + (one.severity ?? 'none')]"
        :transform="'translate(' + one.east + ' ' + -one.north + ') scale(' + unit + ')'">
        <circle r="7"/><text x="10" y="4">{{ one.name }}</text></g>
    </svg>
    <ul v-if="points.length" class="sr"><li v-for="one in points" :key="one.name">{{ t('{0}: {1} m east, {2} m north', one.name, one.east, one.north) }}</li></ul>
    <p v-if="points.length" class="hint">{{ t('{0} m wide', Math.round(box.width)) }}</p>
  </section>`,
  props: { places: Array, area: Array, cards: Object },
  computed: {
    points() {
      return (this.places ?? []).map((one) => ({ ...one, severity: this.cards[one.name]?.severity }));
    },
    // All that is to be seen: the picture, and whoever is outside of it.
    box() {
      const [west, south, east, north] = this.area ?? [];
      const easts = this.points.map((one) => one.east);
      const norths = this.points.map((one) => one.north);
      if (this.area) {
        const left = Math.min(west, ...easts);
        const top = Math.max(north, ...norths);
        return { left, top, width: Math.max(east, ...easts) - left, height: top - Math.min(south, ...norths) };
      }
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
