"""The colours of levels 1 to 4 in every picture: one hue a level, told apart by colour-blind readers too."""

LEVEL_COLORS = ("#a50026", "#e08214", "#4393c3", "#878787")
