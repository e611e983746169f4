// A widget whose state is in one store for its model, shown by one view in each place.
const storedWidget = (createStore, createView, still) => () => {
  let store;
  return {
    initialize({ model }) {
      store = createStore(model);
      model.on("msg:custom", store.receive);
      const endKeeping = keepSaved(model, () => still(store));
      return () => {
        model.off("msg:custom", store.receive);
        store.close();
        endKeeping();
      };
    },
    render({ el }) {
      const view = createView(store, el);
      return () => view.remove();
    },
  };
};
