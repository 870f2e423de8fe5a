"""WinoViz items written by people, on a page of this computer that checks them (appendix A.5)."""
