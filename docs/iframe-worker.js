// Lets the search work on pages that are opened as files, where browsers start no workers: the worker's script runs in
// a hidden frame instead. Without this file, the plugin `offline` would load one for the purpose from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      this.inside = new Promise((resolve) => (frame.onload = () => resolve(frame.contentWindow)));
      this.inside.then((inside) => {
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      });
      frame.hidden = true;
      frame.srcdoc = `<script src="${url}"></script>`;
      document.body.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
