/* iframe-worker.js: the theme searches in a Worker, which a page that was opened from a file may not start.
 * There an iframe does its work. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      const code = this.inside.document.createElement("script");
      this.loaded = new Promise(done => code.addEventListener("load", done));
      code.src = script;
      this.inside.document.body.append(code);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
