-- Whether what an attempt has cost is priced by a table of ours, and was not told by its client.
ALTER TABLE allswell.expense ADD COLUMN estimated boolean NOT NULL DEFAULT false;
