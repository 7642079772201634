/* search_frame.js: search on a page that was opened from a file.
 *
 * Browsers refuse to start a worker from a file, so its script runs in a hidden frame, where
 * addEventListener and postMessage mean what they mean in a worker. */
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow, waiting = [];
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.deliver = data => waiting.push(data);
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.deliver = data => inside.dispatchEvent(new inside.MessageEvent("message", {data}));
        waiting.forEach(this.deliver);
      };
      inside.document.body.append(script);
    }
    postMessage(data) { this.deliver(data); }
    terminate() {}
  };
}
