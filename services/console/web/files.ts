// Stores the files of unfinished uploads in this browser, so people need not choose them
// again after a reload. This is best effort: if the browser rejects a file, the person can
// choose it again.

const largest = 1 << 30; // browsers store a copy of the file

function store<T>(mode: IDBTransactionMode, act: (files: IDBObjectStore) => IDBRequest<T>): Promise<T | undefined> {
  return new Promise((done) => {
    try {
      const opening = indexedDB.open("linkreel-uploads", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("files");
      opening.onerror = opening.onblocked = () => done(undefined);
      opening.onsuccess = () => {
        const db = opening.result;
        const asked = act(db.transaction("files", mode).objectStore("files"));
        asked.onsuccess = () => done(asked.result);
        asked.onerror = () => done(undefined);
        asked.transaction!.oncomplete = asked.transaction!.onabort = () => db.close();
      };
    } catch {
      done(undefined);
    }
  });
}

export const keepFile = (id: string, file: File) => void (file.size <= largest && store("readwrite", (files) => files.put(file, id)));

export const forgetFile = (id: string) => void store("readwrite", (files) => files.delete(id));

/** Returns the file if it can still be read. */
export async function keptFile(id: string): Promise<File | undefined> {
  const file = await store<File | undefined>("readonly", (files) => files.get(id));
  try {
    await file?.slice(0, 1).arrayBuffer();
    return file;
  } catch {
    return undefined;
  }
}
