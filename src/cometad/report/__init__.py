"""A detector and some data as one page to look at: gather what there is to say, thin it, draw it, put it on a page."""
