// Who can measure or report something: asked of the node, in everyday words.
export default {
  template: `
  <div class="part"><section class="card find" id="section-find" data-section="sources" tabindex="-1" aria-labelledby="find-title">
    <div class="card-head"><h2 id="find-title">{{ t('Who can measure this?') }}</h2></div>
    <form @submit.prevent="ask">
      <label class="search"><span class="icon-box" v-html="icon('search')"></span>
        <input v-model="text" id="find-text" maxlength="300" autocapitalize="off" autocomplete="off"
          :placeholder="t('pulse and temperature')" :aria-label="t('What is to be measured?')"></label>
      <div class="find-row"><label>{{ t('near') }} <select v-model="near" id="find-near">
          <option value="">{{ t('this node') }}</option>
          <option v-for="one in places" :key="one" :value="one">{{ one }}</option></select></label>
        <label class="check"><input type="checkbox" v-model="watch"> {{ t('Tell me when somebody better appears') }}</label>
        <button class="primary" id="find">{{ t('Find') }}</button></div>
    </form>
    <p v-if="problem?.words" class="result wrong" role="status">{{ problem.words }}</p>
    <div v-else-if="found?.wanted" role="status">
      <p v-if="!found.rows.length" class="empty">{{ t('Nobody can measure {0}.', found.wanted.join(', ')) }}</p>
      <ol v-else class="found"><li v-for="one in found.rows" :key="one.name">
        <b>{{ one.name }}</b> <span class="where">{{ t(one.is_person ? 'a person, at {0}' : 'at {0}', one.nodes.join(', ')) }}</span>
        <span class="has"><span class="icon-box" v-html="icon('ok')"></span>{{ one.has.join(', ') }}</span>
        <span v-if="one.lacks.length" class="lacks">{{ t('not: {0}', one.lacks.join(', ')) }}</span></li></ol>
      <p v-if="found.is_watched" class="hint">{{ t('You are told here when somebody better appears.') }}</p>
    </div>
  </section></div>`,
  props: { found: Object, problem: Object, nodes: Array, sources: Array },
  data() {
    return { text: "", near: "", watch: false };
  },
  computed: {
    places() {
      return [...(this.nodes ?? []), ...(this.sources ?? []).map((one) => one.name)];
    },
  },
  methods: {
    ask() {
      this.send("find", { text: this.text, near: this.near, watch: this.watch });
    },
  },
};
