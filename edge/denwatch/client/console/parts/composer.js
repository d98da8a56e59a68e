// The subscription field: completion, errors underlined where they occur, preview.
export default {
  template: `
  <div class="part"><section class="card composer" id="section-ask" data-section="ask" tabindex="-1" aria-labelledby="ask-title">
    <div class="card-head"><h2 id="ask-title">{{ t('Subscribe') }}</h2>
      <span class="hint" id="ask-help">{{ t('in words, as you would say it') }}</span></div>
    <div class="field" :class="{ bad: isBad }" ref="field">
      <div class="mirror" aria-hidden="true"><span v-for="(piece, at) in pieces" :key="at"
        :class="{ wrong: piece.isWrong }" :ref="piece.isWrong ? 'wrong' : undefined">{{ piece.text }}</span></div>
      <textarea id="ask-text" ref="text" data-first rows="3" spellcheck="false" autocomplete="off"
        autocapitalize="off" :maxlength="limit" :aria-label="t('What do you need to know?')"
        aria-autocomplete="list" aria-haspopup="listbox" :aria-controls="isProposing ? 'ask-list' : undefined"
        :aria-activedescendant="isProposing && chosen >= 0 ? 'ask-' + chosen : undefined"
        :aria-invalid="isBad ? 'true' : undefined" aria-describedby="ask-help ask-problem"
        :placeholder="t('patient temperature is very high')" v-model="text"
        @input="type" @keydown="press" @click="move" @blur="leave" @scroll="point"></textarea>
      <ul v-if="isProposing" id="ask-list" class="proposals" role="listbox" :aria-label="t('Words that may follow')"
        tabindex="-1">
        <li v-for="(one, at) in completions" :key="one.word" :id="'ask-' + at" role="option"
          :aria-selected="at === chosen ? 'true' : 'false'" :class="{ chosen: at === chosen }"
          @mousedown.prevent="take(one)">
          <span class="word">{{ one.word }}</span><span class="kind">{{ one.kind }}</span>
          <span class="detail">{{ one.detail }}</span>
        </li>
      </ul>
    </div>
    <div id="ask-problem" aria-live="polite">
      <div v-if="isBad" class="problem" :style="{ '--at': arrow + 'px' }">
        <p><span class="icon-box" v-html="icon('warn')"></span>
          <span><b>“{{ wrongWord }}”</b>: {{ problem.message }}<template v-if="problem.hint">
          ({{ problem.hint }})</template></span></p>
        <p v-if="problem.suggestions.length" class="meant">{{ t('Did you mean') }}
          <button v-for="word in problem.suggestions" type="button" :key="word" class="chip"
            @click="repair(word)">{{ word }}</button></p>
        <p v-else-if="problem.hints.length" class="meant">{{ t('Try') }}
          <button v-for="words in problem.hints" type="button" :key="words" class="chip" @click="start(words)">{{ words }}</button></p>
      </div>
      <p v-else-if="problem" class="unfinished">{{ problem.message }}…</p>
    </div>
    <div v-if="!text.trim()" class="examples">
      <p class="hint">{{ t('For example') }}</p>
      <button v-for="one in examples" type="button" class="example" :key="one" @click="start(one)">{{ one }}</button>
    </div>
    <div v-if="isGood && preview" class="meaning">
      <div class="graphs">
        <figure v-for="one in preview.graphs" :key="one.attribute">
          <figcaption><b>{{ one.attribute.replaceAll('_', ' ') }}</b> {{ t('matches {0}', one.counts) }}</figcaption>
          <div v-html="one.svg"></div>
        </figure>
      </div>
      <p class="hint legend"><span class="dash" aria-hidden="true"></span> {{ t('it matches above this line') }}</p>
      <details class="bytes">
        <summary><b>{{ t('{0} bytes', preview.size) }}</b> {{ t('are sent to the sensors') }}
          <span class="strip"><span v-for="(one, at) in preview.fields" :key="at"
            :class="'tone-' + at % 4">{{ one.hex }}</span></span></summary>
        <table><caption class="sr">{{ t('Every field of the vector') }}</caption>
          <thead><tr><th scope="col">{{ t('bytes') }}</th><th scope="col">{{ t('field') }}</th><th scope="col">{{ t('meaning') }}</th></tr></thead>
          <tbody><tr v-for="(one, at) in preview.fields" :key="at">
            <td><code :class="'tone-' + at % 4">{{ one.hex }}</code></td><td>{{ one.field }}</td>
            <td>{{ one.meaning }}</td></tr></tbody></table>
      </details>
      <p class="answered" v-if="preview.answered_by.length"><b>{{ preview.answered_by.length === 1 ? t('1 device') : t('{0} devices', preview.answered_by.length) }}</b>
        {{ t('can match this: {0}', preview.answered_by.slice(0, 6).join(', ')) }}<template v-if="preview.answered_by.length > 6">
        {{ t('and others') }}</template></p>
      <p class="answered" v-else-if="preview.is_known">{{ t('No device here senses all of this now. You can subscribe anyway.') }}</p>
      <p v-for="one in preview.remarks" :key="one" class="remark">{{ one }}</p>
    </div>
    <div class="actions">
      <button type="button" class="primary" id="subscribe" :aria-disabled="isGood ? undefined : 'true'"
        @click="submit">{{ verb }}</button>
      <button v-if="changing" type="button" class="small quiet" @click="changing = null; text = ''">{{ t('Do not change it') }}</button>
      <p class="result" :class="{ wrong: result?.wrong }" role="status">{{ shownResult }}</p>
    </div>
  </section></div>`,
  props: { answer: Object, examples: Array, limit: Number, online: Boolean, here: Boolean, result: Object },
  data() {
    return { text: "", isOpen: false, chosen: -1, arrow: 24, isAsked: false, shownResult: "", changing: null };
  },
  computed: {
    isCurrent() {
      return this.answer && this.answer.text === this.text;
    },
    preview() {
      return this.isCurrent ? this.answer.preview : null;
    },
    problem() {
      return this.preview?.problem ?? null;
    },
    isProposing() {
      return this.isOpen && this.completions.length > 0;
    },
    isBad() {
      // A word that can still become a proposed one is not an error yet.
      if (!this.problem || this.isAsked) return !!this.problem;
      return !this.problem.is_unfinished && !this.isProposing;
    },
    isGood() {
      if (!this.here) return this.text.trim() !== ""; // nobody can check it now: it is checked when it is sent
      return !!this.preview && !this.problem && this.text.trim() !== "";
    },
    completions() {
      return this.isCurrent ? this.answer.completions : [];
    },
    characters() {
      return Array.from(this.text); // the compiler counts characters, not UTF-16 units
    },
    wrongWord() {
      return this.characters.slice(this.problem.start, this.problem.end).join("");
    },
    pieces() {
      const all = this.characters;
      if (!this.isBad) return [{ text: this.text + " " }];
      const { start, end } = this.problem;
      return [
        { text: all.slice(0, start).join("") },
        { text: all.slice(start, end).join(""), isWrong: true },
        { text: all.slice(end).join("") + " " },
      ];
    },
    verb() {
      if (!this.online || !this.here) return this.t("Store, and send later");
      const old = this.changing?.label ?? (this.isCurrent ? this.answer.replaces : "");
      return old ? this.t("Replace “{0}”", old.length > 24 ? old.slice(0, 23) + "…" : old) : this.t("Subscribe");
    },
  },
  watch: {
    answer() {
      this.chosen = -1;
      if (this.isCurrent && !this.completions.length) this.isOpen = false;
      this.$nextTick(this.point);
    },
    isBad() {
      this.$nextTick(this.point);
    },
    here(value) {
      if (value && this.text) this.tell(); // what was written meanwhile is checked now
    },
    "result.count"() {
      this.shownResult = this.result.words;
      if (!this.result.wrong && this.result.text === this.text) {
        this.text = "";
        this.changing = null;
        this.isOpen = false;
      }
    },
  },
  mounted() {
    addEventListener("denwatch-write", this.write);
    addEventListener("resize", this.point);
  },
  unmounted() {
    removeEventListener("denwatch-write", this.write);
    removeEventListener("resize", this.point);
    clearTimeout(this.waiting);
  },
  methods: {
    caret() {
      return Array.from(this.text.slice(0, this.$refs.text.selectionStart)).length;
    },
    type() {
      this.isOpen = true;
      this.isAsked = false;
      this.shownResult = "";
      clearTimeout(this.waiting);
      this.waiting = setTimeout(this.tell, 90);
    },
    tell() {
      this.send("typed", { text: this.text, caret: this.caret() });
    },
    move() {
      if (this.text) this.tell();
      this.isOpen = false;
    },
    leave() {
      this.isOpen = false;
    },
    press(event) {
      const count = this.completions.length;
      if (event.key === " " && event.ctrlKey) {
        this.isOpen = true;
        this.tell();
      } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && this.isOpen && count) {
        const step = event.key === "ArrowDown" ? 1 : -1;
        this.chosen = this.chosen < 0 && step < 0 ? count - 1 : (this.chosen + step + count) % count;
        this.$nextTick(() => document.getElementById(`ask-${this.chosen}`)?.scrollIntoView({ block: "nearest" }));
      } else if (event.key === "ArrowDown" && this.caret() === this.characters.length) {
        this.isOpen = true;
        this.tell();
      } else if (event.key === "Enter" && this.isOpen && this.chosen >= 0) {
        this.take(this.completions[this.chosen]);
      } else if (event.key === "Enter" && !event.shiftKey) {
        this.submit();
      } else if (event.key === "Escape" && this.isOpen) {
        this.isOpen = false;
      } else return;
      event.preventDefault();
    },
    put(start, end, word) {
      const all = this.characters;
      let before = all.slice(0, start).join("");
      if (word === "," || word === ")") before = before.trimEnd();
      const rest = all.slice(end).join("").trimStart();
      this.text = `${before}${word} ${rest}`;
      const place = before.length + word.length + 1;
      this.$nextTick(() => {
        this.$refs.text.focus();
        this.$refs.text.setSelectionRange(place, place);
        this.isOpen = true;
        this.tell();
      });
    },
    take(one) {
      this.put(one.start, this.answer.caret, one.word);
    },
    repair(word) {
      this.put(this.problem.start, this.problem.end, word);
      this.$nextTick(() => (this.isOpen = false));
    },
    start(words) {
      this.text = words;
      this.$nextTick(() => {
        this.$refs.text.focus();
        this.tell();
      });
    },
    write(event) {
      const { words, changes } = event.detail;
      this.changing = changes ?? null;
      const joint = this.text.trim() === "" ? "" : `${this.text.trimEnd()} and `;
      denwatch.show("ask");
      this.start(changes ? words : `${joint}${words} `);
      this.isOpen = !changes;
    },
    submit() {
      this.isAsked = true;
      this.isOpen = false;
      clearTimeout(this.waiting);
      if (!this.text.trim()) this.shownResult = this.t("Write a subscription first.");
      else if (this.isCurrent && this.problem) this.$refs.text.focus();
      else this.send("send", { text: this.text, changes: this.changing?.name ?? "" });
      if (this.isCurrent && this.problem) this.tell();
    },
    point() {
      const wrong = this.$refs.wrong?.[0];
      const mirror = this.$refs.field?.querySelector(".mirror");
      if (!wrong || !mirror) return;
      mirror.scrollTop = this.$refs.text.scrollTop;
      const field = this.$refs.field.getBoundingClientRect();
      const place = wrong.getBoundingClientRect();
      const middle = place.left + Math.min(place.width, 60) / 2 - field.left;
      this.arrow = Math.max(18, Math.min(field.width - 18, middle));
    },
  },
};
